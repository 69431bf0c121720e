"""Architectures of diffusers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tests.architectures.architecture import BATCH, floats, image

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.architectures.architecture import Call

_CONV = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
_DOWN_UP = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
_CROSS = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
}
_VAE = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
_DIT = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16, "sample_size": 8, "patch_size": 2}


def _time() -> torch.Tensor:
    return torch.tensor([3, 7])


def _denoise() -> dict[str, Any]:
    return {"sample": image(16), "timestep": _time()}


def _guided() -> dict[str, Any]:
    return {"sample": floats(4, 16, 16), "timestep": _time(), "encoder_hidden_states": floats(6, 16)}


_ROWS: dict[str, tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "unet-2d": ("UNet2DModel", {**_CONV, **_DOWN_UP, "sample_size": 16, "attention_head_dim": 8}, _denoise),
    "unet-2d-condition": ("UNet2DConditionModel", {**_CONV, **_CROSS, "sample_size": 16}, _guided),
    "controlnet": (
        "ControlNetModel",
        {
            **_CONV,
            **{name: value for name, value in _CROSS.items() if name != "up_block_types"},
            "conditioning_embedding_out_channels": (8, 16),
        },
        lambda: {**_guided(), "controlnet_cond": image(32)},
    ),
    "autoencoder-kl": ("AutoencoderKL", {**_CONV, **_VAE, "latent_channels": 4}, lambda: {"sample": image(16)}),
    "autoencoder-tiny": (
        "AutoencoderTiny",
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        lambda: {"sample": image(16)},
    ),
    "vq-model": ("VQModel", {**_CONV, **_VAE, "num_vq_embeddings": 16}, lambda: {"sample": image(16)}),
    "dit": (
        "DiTTransformer2DModel",
        {**_DIT, "in_channels": 4, "out_channels": 8, "num_embeds_ada_norm": 10, "norm_num_groups": 8},
        lambda: {"hidden_states": floats(4, 8, 8), "timestep": _time(), "class_labels": torch.tensor([1, 4])},
    ),
    "sd3-transformer": (
        "SD3Transformer2DModel",
        {
            **_DIT,
            "in_channels": 4,
            "out_channels": 4,
            "joint_attention_dim": 16,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 16,
            "pos_embed_max_size": 16,
        },
        lambda: {
            "hidden_states": floats(4, 8, 8),
            "encoder_hidden_states": floats(6, 16),
            "pooled_projections": floats(16),
            "timestep": _time(),
        },
    ),
    "pixart-transformer": (
        "PixArtTransformer2DModel",
        {
            **_DIT,
            "in_channels": 4,
            "out_channels": 8,
            "cross_attention_dim": 32,
            "caption_channels": 16,
            "norm_num_groups": 8,
        },
        lambda: {
            "hidden_states": floats(4, 8, 8),
            "encoder_hidden_states": floats(6, 16),
            "timestep": _time(),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
    ),
    "flux-transformer": (
        "FluxTransformer2DModel",
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
        lambda: {
            "hidden_states": floats(16, 4),
            "encoder_hidden_states": floats(6, 16),
            "pooled_projections": floats(16),
            "timestep": torch.rand(BATCH),
            "img_ids": torch.zeros(16, 3),
            "txt_ids": torch.zeros(6, 3),
        },
    ),
}


def _make(row: str) -> Call:
    import diffusers

    class_name, sizes, inputs = _ROWS[row]
    return getattr(diffusers, class_name)(**sizes), (), inputs()


ARCHITECTURES: dict[str, Callable[[], Call]] = {name: partial(_make, name) for name in _ROWS}

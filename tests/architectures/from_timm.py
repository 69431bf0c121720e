"""Architectures of timm: a name of its registry, or a module and a class, and the sizes of a small one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.architectures.architecture import image

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.architectures.architecture import Call

_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
_FOUR = {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}

_ROWS: dict[str, tuple[str, dict[str, Any], int]] = {
    "resnet": ("resnet10t", {"layers": (1, 1, 1, 1), "channels": (8, 16, 16, 32)}, 32),
    "resnext": ("resnext50_32x4d", {"layers": (1, 1, 1, 1), "cardinality": 4}, 32),
    "seresnet": ("seresnet18", {"layers": (1, 1, 1, 1)}, 32),
    "mobilenetv3": ("mobilenetv3_small_050", {}, 32),
    "densenet": ("densenet121", {"growth_rate": 8, "block_config": (2, 2, 2, 2)}, 32),
    "convnext": ("convnext_atto", _FOUR, 32),
    "vit": ("vit_tiny_patch16_224", _VIT, 32),
    "eva02": ("eva02_tiny_patch14_224", _VIT, 32),
    "cait": ("cait_xxs24_224", {**_VIT, "depth_token_only": 1}, 32),
    "xcit": ("xcit_nano_12_p8_224", {**_VIT}, 32),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 32, "window_size": 4, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)},
        32,
    ),
    "pvt-v2": ("pvt_v2_b0", {"depths": (1, 1, 1, 1)}, 64),
    "poolformer": ("metaformer.MetaFormer", _FOUR, 32),
    "mlp-mixer": ("mlp_mixer.MlpMixer", {"img_size": 32, "patch_size": 8, "num_blocks": 2, "embed_dim": 32}, 32),
    "levit": (
        "levit_128s",
        {"img_size": 64, "depth": (1, 1, 1), "embed_dim": (16, 32, 32), "num_heads": (1, 2, 2), "key_dim": 8},
        64,
    ),
    "davit": ("davit_tiny", {"depths": (1, 1), "embed_dims": (16, 32), "num_heads": (1, 2), "window_size": 4}, 32),
}


def _make(row: str) -> Call:
    import timm

    name, sizes, pixels = _ROWS[row]
    if "." in name:
        module, _, class_name = name.partition(".")
        model = getattr(getattr(timm.models, module), class_name)(num_classes=10, **sizes)
    else:
        model = timm.create_model(name, pretrained=False, num_classes=10, **sizes)
    return model, (image(pixels),), {}


ARCHITECTURES: dict[str, Callable[[], Call]] = {name: partial(_make, name) for name in _ROWS}

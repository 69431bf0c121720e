"""Architectures of libraries of sound, graphs, segmentation, medicine, recommendation and tables, and of others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from tests.architectures.architecture import VOCABULARY, floats, ids, image

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.architectures.architecture import Call


def _conformer() -> Call:
    from torchaudio.models import Conformer

    model = Conformer(input_dim=16, num_heads=2, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=5)
    return model, (floats(12, 16), torch.tensor([12, 9])), {}


def _conv_tasnet() -> Call:
    from torchaudio.models import ConvTasNet

    sizes = {"enc_kernel_size": 8, "enc_num_feats": 16, "msk_num_feats": 16, "msk_num_hidden_feats": 16}
    return ConvTasNet(num_sources=2, **sizes, msk_num_layers=2, msk_num_stacks=1), (floats(1, 256),), {}


def _wav2vec2() -> Call:
    from torchaudio.models import wav2vec2_model

    sizes = {"encoder_embed_dim": 32, "encoder_pos_conv_kernel": 16, "encoder_pos_conv_groups": 2}
    dropout = dict.fromkeys(
        ("encoder_projection_dropout", "encoder_attention_dropout", "encoder_ff_interm_dropout", "encoder_dropout"), 0.0
    )
    model = wav2vec2_model(
        "group_norm",
        [(16, 10, 5), (16, 8, 4)],
        False,
        **sizes,
        **dropout,
        encoder_num_layers=2,
        encoder_num_heads=2,
        encoder_ff_interm_features=64,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=None,
    )
    return model, (floats(800),), {}


def _emformer() -> Call:
    from torchaudio.models import Emformer

    return Emformer(16, 2, 32, 2, segment_length=4, right_context_length=1), (floats(9, 16), torch.tensor([8, 8])), {}


def _deepspeech() -> Call:
    from torchaudio.models import DeepSpeech

    return DeepSpeech(n_feature=8, n_hidden=32, n_class=10), (floats(1, 12, 8),), {}


def _graph(name: str) -> Call:
    import torch_geometric.nn

    edges = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 5, 0], [1, 0, 2, 1, 4, 3, 0, 2, 5]])
    model = getattr(torch_geometric.nn, name)(in_channels=8, hidden_channels=16, num_layers=2, out_channels=4)
    return model, (torch.randn(6, 8, generator=torch.Generator().manual_seed(6)), edges), {}


def _segmentation(name: str, encoder: str = "resnet18") -> Call:
    import segmentation_models_pytorch

    return getattr(segmentation_models_pytorch, name)(encoder, encoder_weights=None, classes=3), (image(64),), {}


def _deepfm() -> Call:
    return _deepctr("DeepFM")


def _xdeepfm() -> Call:
    return _deepctr("xDeepFM")


def _dcn() -> Call:
    return _deepctr("DCN")


def _deepctr(name: str) -> Call:
    import deepctr_torch.inputs
    import deepctr_torch.models

    columns = [deepctr_torch.inputs.SparseFeat(f"C{index}", 20, embedding_dim=4) for index in range(4)]
    columns += [deepctr_torch.inputs.DenseFeat(f"I{index}", 1) for index in range(3)]
    model = getattr(deepctr_torch.models, name)(columns, columns, dnn_hidden_units=(16, 16))
    return model, (torch.cat((ids(4, high=20).float(), floats(3)), dim=1),), {}


def _monai_unet() -> Call:
    from monai.networks.nets import UNet

    return UNet(2, 1, 2, channels=(8, 16, 32), strides=(2, 2), num_res_units=1), (image(32, 1),), {}


def _monai_unetr() -> Call:
    from monai.networks.nets import UNETR

    return UNETR(1, 2, (32, 32), 8, 32, 64, 2, spatial_dims=2), (image(32, 1),), {}


def _vit_pytorch_simple() -> Call:
    from vit_pytorch import SimpleViT

    return SimpleViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=64), (image(),), {}


def _x_transformers_decoder() -> Call:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=32, attn_layers=layers), (ids(),), {}


def _perceiver() -> Call:
    from perceiver_pytorch import PerceiverIO

    sizes = {"num_latents": 8, "latent_dim": 16, "cross_heads": 1, "latent_heads": 2}
    model = PerceiverIO(depth=2, dim=8, queries_dim=8, logits_dim=4, **sizes, cross_dim_head=8, latent_dim_head=8)
    return model, (floats(12, 8),), {"queries": torch.randn(5, 8, generator=torch.Generator().manual_seed(6))}


def _ft_transformer() -> Call:
    from rtdl_revisiting_models import FTTransformer

    model = FTTransformer(
        n_cont_features=3,
        cat_cardinalities=[5, 7],
        d_out=2,
        n_blocks=2,
        d_block=16,
        attention_n_heads=2,
        attention_dropout=0.1,
        ffn_d_hidden_multiplier=2.0,
        ffn_dropout=0.1,
        residual_dropout=0.0,
    )
    return model, (floats(3), ids(2, low=0, high=5)), {}


def _tab_transformer() -> Call:
    from tab_transformer_pytorch import TabTransformer

    model = TabTransformer(
        categories=(5, 7), num_continuous=3, dim=16, dim_out=1, depth=2, heads=2, dim_head=8, mlp_act=torch.nn.ReLU()
    )
    return model, (ids(2, low=0, high=5), floats(3)), {}


def _tabnet() -> Call:
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(6, 2, group_attention_matrix=torch.eye(6)), (floats(6),), {}


def _encodec() -> Call:
    from encodec.modules import SEANetEncoder

    return SEANetEncoder(dimension=16, n_filters=4, n_residual_layers=1, ratios=[4, 2], lstm=1), (floats(1, 256),), {}


def _vocos() -> Call:
    from vocos.models import VocosBackbone

    return VocosBackbone(input_channels=8, dim=16, intermediate_dim=32, num_layers=2), (floats(8, 20),), {}


def _snac() -> Call:
    from snac.layers import Decoder

    return (
        Decoder(input_channel=16, channels=32, rates=[2, 2], noise=False, attn_window_size=None),
        (floats(16, 12),),
        {},
    )


def _open_clip() -> Call:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=32, head_width=16, patch_size=8, image_size=32)
    text = CLIPTextCfg(context_length=8, vocab_size=VOCABULARY, width=32, heads=2, layers=2)
    return CLIP(16, vision, text), (image(), ids()), {}


def _temporal_convolutions() -> Call:
    from pytorch_tcn import TCN

    return TCN(4, [8, 8], kernel_size=3), (floats(4, 24),), {}


def _closed_form_continuous() -> Call:
    from ncps.torch import CfC

    return CfC(4, 16), (floats(6, 4),), {}


def _neural_ode() -> Call:
    return _Flow(), (floats(4),), {}


class _Flow(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        from torchdiffeq import odeint

        times = torch.linspace(0, 1, 4)
        return odeint(lambda _, state: self.field(state), start, times, method="rk4")


ARCHITECTURES: dict[str, Callable[[], Call]] = {
    "torchaudio/conformer": _conformer,
    "torchaudio/conv-tasnet": _conv_tasnet,
    "torchaudio/wav2vec2": _wav2vec2,
    "torchaudio/emformer": _emformer,
    "torchaudio/deepspeech": _deepspeech,
    "torch_geometric/gcn": partial(_graph, "GCN"),
    "torch_geometric/graphsage": partial(_graph, "GraphSAGE"),
    "torch_geometric/gat": partial(_graph, "GAT"),
    "torch_geometric/gin": partial(_graph, "GIN"),
    "torch_geometric/edge-cnn": partial(_graph, "EdgeCNN"),
    "segmentation_models_pytorch/unet": partial(_segmentation, "Unet"),
    "segmentation_models_pytorch/fpn": partial(_segmentation, "FPN"),
    "segmentation_models_pytorch/deeplabv3plus": partial(_segmentation, "DeepLabV3Plus"),
    "deepctr_torch/deepfm": _deepfm,
    "deepctr_torch/xdeepfm": _xdeepfm,
    "deepctr_torch/dcn": _dcn,
    "monai/unet": _monai_unet,
    "monai/unetr": _monai_unetr,
    "vit_pytorch/simple-vit": _vit_pytorch_simple,
    "x_transformers/decoder": _x_transformers_decoder,
    "perceiver_pytorch/perceiver-io": _perceiver,
    "rtdl_revisiting_models/ft-transformer": _ft_transformer,
    "tab_transformer_pytorch/tab-transformer": _tab_transformer,
    "pytorch_tabnet/tabnet": _tabnet,
    "encodec/encoder": _encodec,
    "vocos/backbone": _vocos,
    "snac/decoder": _snac,
    "open_clip/clip": _open_clip,
    "pytorch_tcn/tcn": _temporal_convolutions,
    "ncps/cfc": _closed_form_continuous,
    "torchdiffeq/neural-ode": _neural_ode,
}

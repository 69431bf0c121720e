"""Differing pairs: convolution, pooling, normalisation, activations, recurrence, tables, padding, resizing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from tests.keys.pairs.pair import Pair, Program, pair

if TYPE_CHECKING:
    from collections.abc import Callable

_IMAGE = (2, 4, 9, 9)
_KERNEL = {"k": (4, 4, 3, 3)}


def _modules(name: str, one: Callable[[], nn.Module], other: Callable[[], nn.Module], *inputs: object) -> Pair:
    return pair(name, Program(one), Program(other), *inputs)


def convolution() -> list[Pair]:
    """Strides, padding, dilation, groups, direction and use of the kernel."""

    def plain(w: object, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w.k)

    def against(name: str, other: Callable[..., torch.Tensor]) -> Pair:
        return pair(f"conv: {name}", plain, other, _IMAGE, weights=_KERNEL)

    return [
        against("stride", lambda w, x: F.conv2d(x, w.k, stride=2)),
        against("padding", lambda w, x: F.conv2d(x, w.k, padding=1)),
        against("padding by name", lambda w, x: F.conv2d(x, w.k, padding="same")),
        against("dilation", lambda w, x: F.conv2d(x, w.k, dilation=2)),
        against("flipped kernel", lambda w, x: F.conv2d(x, w.k.flip(2))),
        against("transposed kernel", lambda w, x: F.conv2d(x, w.k.transpose(0, 1))),
        against("turned kernel", lambda w, x: F.conv2d(x, w.k.transpose(2, 3))),
        against("transposed convolution", lambda w, x: F.conv_transpose2d(x, w.k)),
        pair(
            "conv: stride by axis",
            lambda w, x: F.conv2d(x, w.k, stride=(1, 2)),
            lambda w, x: F.conv2d(x, w.k, stride=(2, 1)),
            _IMAGE,
            weights=_KERNEL,
        ),
        pair(
            "conv: output padding",
            lambda w, x: F.conv_transpose2d(x, w.k, stride=2),
            lambda w, x: F.conv_transpose2d(x, w.k, stride=2, output_padding=1),
            _IMAGE,
            weights=_KERNEL,
        ),
        _modules("conv: groups", lambda: nn.Conv2d(4, 4, 3, groups=2), lambda: nn.Conv2d(4, 4, 3, groups=4), _IMAGE),
        _modules("conv: bias", lambda: nn.Conv2d(4, 4, 3), lambda: nn.Conv2d(4, 4, 3, bias=False), _IMAGE),
        _modules(
            "conv: padding mode",
            lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
            lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
            _IMAGE,
        ),
        _modules("conv: 1-d dilation", lambda: nn.Conv1d(4, 4, 2), lambda: nn.Conv1d(4, 4, 2, dilation=2), (2, 4, 9)),
        _modules("conv: 3-d kernel", lambda: nn.Conv3d(2, 2, 2), lambda: nn.Conv3d(2, 2, (2, 2, 1)), (1, 2, 4, 4, 4)),
    ]


def pooling() -> list[Pair]:
    """Kind, window, stride, borders and what is returned."""
    return [
        pair("pool: kind", lambda x: F.max_pool2d(x, 3), lambda x: F.avg_pool2d(x, 3), _IMAGE),
        pair("pool: window", lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3), _IMAGE),
        pair("pool: stride", lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, 1), _IMAGE),
        pair("pool: padding", lambda x: F.max_pool2d(x, 3, 3), lambda x: F.max_pool2d(x, 3, 3, 1), _IMAGE),
        pair("pool: dilation", lambda x: F.max_pool2d(x, 3, 1), lambda x: F.max_pool2d(x, 3, 1, 0, 2), _IMAGE),
        pair("pool: ceil", lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2, ceil_mode=True), _IMAGE),
        pair(
            "pool: padding counted",
            lambda x: F.avg_pool2d(x, 3, 1, 1),
            lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
            _IMAGE,
        ),
        pair("pool: divisor", lambda x: F.avg_pool2d(x, 3), lambda x: F.avg_pool2d(x, 3, divisor_override=2), _IMAGE),
        pair(
            "pool: adaptive size", lambda x: F.adaptive_avg_pool2d(x, 1), lambda x: F.adaptive_avg_pool2d(x, 2), _IMAGE
        ),
        pair(
            "pool: adaptive kind", lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.adaptive_max_pool2d(x, 2), _IMAGE
        ),
        pair("pool: indices", lambda x: F.max_pool2d(x, 3), lambda x: F.max_pool2d(x, 3, return_indices=True), _IMAGE),
        pair("pool: norm", lambda x: F.lp_pool2d(x, 1.0, 3), lambda x: F.lp_pool2d(x, 2.0, 3), _IMAGE),
    ]


def normalisation() -> list[Pair]:
    """Epsilon, groups, what is normalised over, and whose statistics are used."""
    return [
        pair("norm: eps", lambda x: F.layer_norm(x, [9]), lambda x: F.layer_norm(x, [9], eps=1e-3), _IMAGE),
        pair("norm: extent", lambda x: F.layer_norm(x, [9]), lambda x: F.layer_norm(x, [9, 9]), _IMAGE),
        pair("norm: root mean square", lambda x: F.layer_norm(x, [9]), lambda x: F.rms_norm(x, [9]), _IMAGE),
        pair("norm: groups", lambda x: F.group_norm(x, 2), lambda x: F.group_norm(x, 4), _IMAGE),
        pair("norm: power", lambda x: F.normalize(x), lambda x: F.normalize(x, p=1.0), _IMAGE),
        pair("norm: dim", lambda x: F.normalize(x), lambda x: F.normalize(x, dim=2), _IMAGE),
        pair(
            "norm: local size",
            lambda x: F.local_response_norm(x, 2, 0.1),
            lambda x: F.local_response_norm(x, 3, 0.1),
            _IMAGE,
        ),
        pair(
            "norm: statistics of the batch",
            lambda w, x: F.batch_norm(x, w.mean.detach(), w.var.detach().abs()),
            lambda w, x: F.batch_norm(x, None, None, training=True),
            _IMAGE,
            weights={"mean": (4,), "var": (4,)},
        ),
        _modules("norm: batch eps", lambda: nn.BatchNorm2d(4), lambda: nn.BatchNorm2d(4, eps=1e-2), _IMAGE),
        _modules("norm: affine", lambda: _shifted(nn.LayerNorm(9)), lambda: nn.LayerNorm(9, bias=False), _IMAGE),
        pair(
            "norm: weight and bias crossed",
            lambda w, x: F.layer_norm(x, [9], w.a, w.b) * w.a,
            lambda w, x: F.layer_norm(x, [9], w.a, w.b) * w.b,
            _IMAGE,
            weights={"a": (9,), "b": (9,)},
        ),
    ]


def _shifted(module: nn.LayerNorm) -> nn.LayerNorm:
    nn.init.normal_(module.bias)
    return module


def activations() -> list[Pair]:
    """Kinds and parameters."""
    x = (5, 7)
    return [
        pair("act: gelu", lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh"), x),
        pair("act: leaky slope", lambda x: F.leaky_relu(x), lambda x: F.leaky_relu(x, 0.02), x),
        pair("act: elu alpha", lambda x: F.elu(x), lambda x: F.elu(x, 0.5), x),
        pair("act: celu alpha", lambda x: F.celu(x), lambda x: F.celu(x, 0.5), x),
        pair("act: softplus beta", lambda x: F.softplus(x), lambda x: F.softplus(x, 2), x),
        pair("act: softplus threshold", lambda x: F.softplus(x), lambda x: F.softplus(x, threshold=1), x),
        pair("act: threshold", lambda x: F.threshold(x, 0.1, 1.0), lambda x: F.threshold(x, 1.0, 0.1), x),
        pair("act: hardtanh", lambda x: F.hardtanh(x), lambda x: F.hardtanh(x, -0.5, 1.0), x),
        pair("act: relu6", lambda x: F.relu(x * 9), lambda x: F.relu6(x * 9), x),
        pair("act: silu and mish", lambda x: F.silu(x), lambda x: F.mish(x), x),
        pair("act: silu and sigmoid", lambda x: F.silu(x), lambda x: F.sigmoid(x), x),
        pair("act: hardswish and hardsigmoid", lambda x: F.hardswish(x), lambda x: F.hardsigmoid(x), x),
        pair("act: softshrink", lambda x: F.softshrink(x), lambda x: F.softshrink(x, 0.1), x),
        pair("act: clamp", lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=0.5), x),
        pair("act: softmax and softmin", lambda x: F.softmax(x, 1), lambda x: F.softmin(x, 1), x),
        pair("act: softmax dim", lambda x: x.softmax(-1), lambda x: x.softmax(0), x),
        pair("act: log softmax", lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), x),
        pair("act: softmax temperature", lambda x: x.softmax(-1), lambda x: (x / 2).softmax(-1), x),
        pair("act: glu dim", lambda x: F.glu(x, 0), lambda x: F.glu(x, 1), (4, 4)),
        pair("act: prelu", lambda w, x: F.prelu(x, w.a), lambda w, x: F.prelu(x, -w.a), x, weights={"a": (7,)}),
    ]


def recurrent() -> list[Pair]:
    """Cells, directions, layers and results."""

    def lstm(**options: object) -> Program:
        return Program(lambda: nn.LSTM(4, 4, **options))

    def cell(pick: Callable[..., object]) -> Callable[..., object]:
        return lambda w, x: pick(*_rnn(w, x, torch.lstm))

    x, weights = (3, 2, 4), {"a": (16, 4), "b": (16, 4)}
    return [
        _modules("rnn: non-linearity", lambda: nn.RNN(4, 4), lambda: nn.RNN(4, 4, nonlinearity="relu"), x),
        _modules("rnn: cell", lambda: nn.LSTM(4, 4), lambda: nn.GRU(4, 4), x),
        pair("rnn: direction", lstm(), lstm(bidirectional=True), x),
        pair("rnn: layers", lstm(), lstm(num_layers=2), x),
        pair("rnn: batch first", lstm(), lstm(batch_first=True), x),
        pair("rnn: projection", lstm(), lstm(proj_size=2), x),
        pair("rnn: state", cell(lambda _, h, c: h), cell(lambda _, h, c: c), x, weights=weights),
    ]


def _rnn(w: object, x: torch.Tensor, function: Callable[..., object]) -> object:
    state = x.new_zeros(1, x.shape[1], 4)
    return function(x, (state, state), [w.a, w.b], False, 1, 0.0, False, False, False)


def embedding() -> list[Pair]:
    """Reductions and uses of a table."""
    ids, table = torch.tensor([[1, 2, 2], [0, 4, 3]]), {"t": (5, 4)}
    return [
        pair(
            "embedding: bag",
            lambda w, i: F.embedding_bag(i, w.t, mode="sum"),
            lambda w, i: F.embedding_bag(i, w.t, mode="mean"),
            ids,
            weights=table,
        ),
        pair(
            "embedding: and index",
            lambda w, i: F.embedding(i, w.t),
            lambda w, i: F.embedding(i.t(), w.t),
            ids,
            weights=table,
        ),
        pair("one-hot: classes", lambda i: F.one_hot(i, 5), lambda i: F.one_hot(i, 6), ids),
        pair(
            "embedding: shifted",
            lambda w, i: F.embedding(i, w.t),
            lambda w, i: F.embedding((i + 1) % 5, w.t),
            ids,
            weights=table,
        ),
    ]


def padding() -> list[Pair]:
    """Mode, value and sides."""

    def padded(amounts: tuple[int, ...], mode: str = "constant", value: float | None = None) -> Callable[..., object]:
        return lambda x: F.pad(x, amounts, mode, value)

    return [
        pair("pad: mode", padded((1, 1), "reflect"), padded((1, 1), "replicate"), (2, 3, 5)),
        pair("pad: circular", padded((1, 1), "reflect"), padded((1, 1), "circular"), (2, 3, 5)),
        pair("pad: value", padded((1, 1)), padded((1, 1), value=1.0), (2, 3, 5)),
        pair("pad: side", padded((1, 0)), padded((0, 1)), (2, 3, 5)),
        pair("pad: axis", padded((1, 1, 0, 0)), padded((0, 0, 1, 1)), (2, 5, 5)),
        pair("pad: cropped", padded((-1, 0)), padded((0, -1)), (2, 3, 5)),
    ]


def resizing() -> list[Pair]:
    """Interpolation and sampling."""
    x = (1, 2, 5, 5)
    grid = torch.rand(1, 4, 4, 2, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2

    def sized(**options: object) -> Callable[..., object]:
        return lambda x: F.interpolate(x, **options)

    return [
        pair("resize: mode", sized(size=8), sized(size=8, mode="bilinear"), x),
        pair("resize: cubic", sized(size=8, mode="bilinear"), sized(size=8, mode="bicubic"), x),
        pair("resize: corners", sized(size=8, mode="bilinear"), sized(size=8, mode="bilinear", align_corners=True), x),
        pair("resize: size", sized(size=8), sized(size=(8, 9)), x),
        pair("resize: exact", sized(size=8), sized(size=8, mode="nearest-exact"), x),
        pair("resize: antialias", sized(size=3, mode="bilinear"), sized(size=3, mode="bilinear", antialias=True), x),
        pair("resize: shuffle", lambda x: F.pixel_shuffle(x, 2), lambda x: x.reshape(1, 1, 10, 10), (1, 4, 5, 5)),
        pair(
            "sample: mode",
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            lambda x, g: F.grid_sample(x, g, "nearest", align_corners=False),
            x,
            grid,
        ),
        pair(
            "sample: border",
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=False),
            x,
            grid,
        ),
        pair(
            "sample: corners",
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            lambda x, g: F.grid_sample(x, g, align_corners=True),
            x,
            grid,
        ),
    ]


def pairs() -> list[Pair]:
    """Return all of them."""
    families = (convolution, pooling, normalisation, activations, recurrent, embedding, padding, resizing)
    return [one for family in families for one in family()]

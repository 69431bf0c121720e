"""Differing pairs: attention, products, arithmetic, indexing, reductions, sorting, shapes and dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

from tests.keys.pairs.pair import Pair, Program, pair

if TYPE_CHECKING:
    from collections.abc import Callable

_SQUARE = (5, 5)
_HEADS = (1, 2, 6, 4)


def attention() -> list[Pair]:
    """Masks, scale, and which tensor is the query."""
    mask = torch.tensor([True, True, False, True, False, True]).expand(6, 6).contiguous()

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    def against(name: str, other: Callable[..., torch.Tensor], *more: torch.Tensor) -> Pair:
        one = plain if not more else lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m)
        return pair(f"attention: {name}", one, other, _HEADS, _HEADS, _HEADS, *more)

    return [
        against("causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        against("scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3)),
        against("query and key", lambda q, k, v: F.scaled_dot_product_attention(k, q, v)),
        against("key and value", lambda q, k, v: F.scaled_dot_product_attention(q, v, k)),
        against("value twice", lambda q, k, v: F.scaled_dot_product_attention(q, v, v) + k * 0),
        against("over heads", lambda q, k, v: plain(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)),
        against("no mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v), mask),
        against("inverted mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, ~m), mask),
        against("added mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.float()), mask),
        pair(
            "attention: heads",
            Program(lambda: torch.nn.MultiheadAttention(8, 2)),
            Program(lambda: torch.nn.MultiheadAttention(8, 4)),
            *((3, 2, 8),) * 3,
        ),
        pair(
            "attention: window",
            lambda q, k: ((q @ k.mT) + torch.full((6, 6), -9.0).triu(1)).softmax(-1),
            lambda q, k: ((q @ k.mT) + torch.full((6, 6), -9.0).triu(2)).softmax(-1),
            _HEADS,
            _HEADS,
        ),
    ]


def products() -> list[Pair]:
    """Order and contracted dimensions."""
    batch = (2, 4, 4)
    return [
        pair("matmul: order", lambda a, b: a @ b, lambda a, b: b @ a, _SQUARE, _SQUARE),
        pair("matmul: transposed", lambda a, b: a @ b, lambda a, b: a @ b.t(), _SQUARE, _SQUARE),
        pair("bmm: transposed", lambda a, b: a @ b, lambda a, b: a.mT @ b, batch, batch),
        pair(
            "einsum: contracted",
            lambda a, b: torch.einsum("bij,bjk->bik", a, b),
            lambda a, b: torch.einsum("bij,bkj->bik", a, b),
            batch,
            batch,
        ),
        pair(
            "einsum: output",
            lambda a, b: torch.einsum("bij,bjk->bik", a, b),
            lambda a, b: torch.einsum("bij,bjk->bki", a, b),
            batch,
            batch,
        ),
        pair(
            "addmm: beta",
            lambda a, b, c: torch.addmm(a, b, c),
            lambda a, b, c: torch.addmm(a, b, c, beta=0.5),
            *(_SQUARE,) * 3,
        ),
        pair(
            "addmm: alpha",
            lambda a, b, c: torch.addmm(a, b, c),
            lambda a, b, c: torch.addmm(a, b, c, alpha=0.5),
            *(_SQUARE,) * 3,
        ),
        pair(
            "linear: bias axis",
            lambda a, b, c: a @ b + c,
            lambda a, b, c: a @ b + c[:, None],
            _SQUARE,
            _SQUARE,
            (5,),
        ),
    ]


def arithmetic() -> list[Pair]:
    """Operators, the order of their operands, and numbers."""
    zero = torch.tensor([-0.0, 1.0])
    whole = torch.tensor([-7, 7, 5])
    bits = torch.tensor([5, 6])
    return [
        pair("sub: order", lambda a, b: a - b, lambda a, b: b - a, _SQUARE, _SQUARE),
        pair("div: order", lambda a, b: a / b, lambda a, b: b / a, _SQUARE, _SQUARE),
        pair("pow: order", lambda a, b: a.exp() ** b, lambda a, b: b ** a.exp(), _SQUARE, torch.full(_SQUARE, 2.0)),
        pair("pow: exponent", lambda a: a**2, lambda a: a**3, _SQUARE),
        pair("add: alpha", lambda a, b: torch.add(a, b), lambda a, b: torch.add(a, b, alpha=2), _SQUARE, _SQUARE),
        pair("add: number", lambda a: a + 1.0, lambda a: a + 1.001, _SQUARE),
        pair("add: negative zero", lambda a: a + 0.0, lambda a: a + -0.0, zero),
        pair("mul: kind of number", lambda a: a * 2, lambda a: a * 2.0, whole),
        pair("maximum", torch.maximum, torch.minimum, _SQUARE, _SQUARE),
        pair("comparison", lambda a, b: a > b, lambda a, b: a < b, _SQUARE, _SQUARE),
        pair("comparison: equal", lambda a: a >= 7, lambda a: a > 7, whole),
        pair("sine", torch.sin, torch.cos, _SQUARE),
        pair("root", lambda a: a.abs().sqrt(), lambda a: a.abs().rsqrt(), _SQUARE),
        pair("exponential", torch.exp, torch.expm1, _SQUARE),
        pair("rounding", torch.floor, torch.trunc, _SQUARE),
        pair("rounding: decimals", lambda a: a.round(), lambda a: a.round(decimals=1), _SQUARE),
        pair("remainder", lambda a: a % 3, lambda a: torch.fmod(a, 3), whole),
        pair(
            "division: rounding",
            lambda a: torch.div(a, 2, rounding_mode="floor"),
            lambda a: torch.div(a, 2, rounding_mode="trunc"),
            whole,
        ),
        pair("atan2: order", torch.atan2, lambda a, b: torch.atan2(b, a), _SQUARE, _SQUARE),
        pair("addcmul: value", torch.addcmul, lambda a, b, c: torch.addcmul(a, b, c, value=2), *(_SQUARE,) * 3),
        pair("lerp: weight", lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: torch.lerp(a, b, 0.4), _SQUARE, _SQUARE),
        pair("lerp: order", lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: torch.lerp(b, a, 0.3), _SQUARE, _SQUARE),
        pair("bits", lambda a: a & 3, lambda a: a | 3, bits),
        pair("shift", lambda a: a << 1, lambda a: a >> 1, bits),
        pair("edge", lambda a, b: (a + b) * a, lambda a, b: (a + b) * b, _SQUARE, _SQUARE),
        pair(
            "where: sides",
            lambda a, b: torch.where(a > 0, a, b),
            lambda a, b: torch.where(a > 0, b, a),
            *(_SQUARE,) * 2,
        ),
        pair("crossed: other operand", lambda a, b, c: (a + b) * c, lambda a, b, c: (a + c) * b, *(_SQUARE,) * 3),
        pair("crossed: four", lambda a, b, c: (a + b) * (a * c), lambda a, b, c: (a + b) * (b * c), *(_SQUARE,) * 3),
        pair("division: by three", lambda a: a / 3, lambda a: a / 3.001, _SQUARE),
        pair("difference: zero", lambda a: a - 0.0, lambda a: a + 0.0, zero),
        pair("nan to number", lambda a: a.log().nan_to_num(), lambda a: a.log().nan_to_num(1.0), _SQUARE),
        pair("fft: norm", lambda a: torch.fft.rfft(a).abs(), lambda a: torch.fft.rfft(a, norm="ortho").abs(), _SQUARE),
        pair("cdist: power", lambda a, b: torch.cdist(a, b), lambda a, b: torch.cdist(a, b, p=1.0), _SQUARE, _SQUARE),
    ]


def indexing() -> list[Pair]:
    """Where is read and where is written."""
    ids = torch.tensor([[0, 2, 1, 1, 0]]).expand(5, 5).contiguous()
    rows = torch.tensor([0, 2, 2])
    return [
        pair("select: dim", lambda a: a[0], lambda a: a[:, 0], _SQUARE),
        pair("select: place", lambda a: a[0], lambda a: a[-1], _SQUARE),
        pair("slice: start", lambda a: a[1:4], lambda a: a[0:3], _SQUARE),
        pair("slice: step", lambda a: a[0:5:2], lambda a: a[0:3], _SQUARE),
        pair("slice: dim", lambda a: a[1:], lambda a: a[:, 1:], _SQUARE),
        pair("gather: dim", lambda a, i: a.gather(0, i), lambda a, i: a.gather(1, i), _SQUARE, ids),
        pair("index: dim", lambda a, i: a[i], lambda a, i: a[:, i], _SQUARE, rows),
        pair("index: pairs", lambda a, i: a[i, i], lambda a, i: a[i][:, i], _SQUARE, rows),
        pair(
            "index put: accumulate",
            lambda a, i: a.index_put((i,), torch.ones(3, 5)),
            lambda a, i: a.index_put((i,), torch.ones(3, 5), accumulate=True),
            _SQUARE,
            rows,
        ),
        pair(
            "scatter: reduce",
            lambda a, i: a.scatter_reduce(1, i, a, "sum"),
            lambda a, i: a.scatter_reduce(1, i, a, "amax"),
            _SQUARE,
            ids,
        ),
        pair("scatter: add", lambda a, i: a.scatter_add(0, i, a), lambda a, i: a.scatter_add(1, i, a), _SQUARE, ids),
        pair("mask: value", lambda a: a.masked_fill(a > 0, 1.0), lambda a: a.masked_fill(a > 0, 2.0), _SQUARE),
        pair("mask: condition", lambda a: a.masked_fill(a > 0, 1.0), lambda a: a.masked_fill(a < 0, 1.0), _SQUARE),
        pair("triangle", lambda a: a.tril(), lambda a: a.triu(), _SQUARE),
        pair("triangle: diagonal", lambda a: a.tril(), lambda a: a.tril(1), _SQUARE),
        pair("diagonal", lambda a: a.diagonal(), lambda a: a.diagonal(1)[:4], _SQUARE),
        pair("roll: shift", lambda a: a.roll(1, 0), lambda a: a.roll(2, 0), _SQUARE),
        pair("roll: dim", lambda a: a.roll(1, 0), lambda a: a.roll(1, 1), _SQUARE),
        pair("flip: dim", lambda a: a.flip(0), lambda a: a.flip(1), _SQUARE),
        pair("split: place", lambda a: a.split([2, 3])[0], lambda a: a.split([3, 2])[0], _SQUARE),
        pair("chunk: which", lambda a: a.chunk(2, 1)[0], lambda a: a.chunk(2, 1)[1], (4, 4)),
        pair("unfold: step", lambda a: a.unfold(0, 2, 1), lambda a: a.unfold(0, 2, 2), _SQUARE),
    ]


def reductions() -> list[Pair]:
    """What is reduced, how, and in what shape."""
    return [
        pair("sum: dim", lambda a: a.sum(0), lambda a: a.sum(1), _SQUARE),
        pair("sum: kept dim", lambda a: a.sum(0), lambda a: a.sum(0, keepdim=True), _SQUARE),
        pair("sum: all", lambda a: a.sum(), lambda a: a.sum((0,)), _SQUARE),
        pair("sum: mean", lambda a: a.sum(1), lambda a: a.mean(1), _SQUARE),
        pair("var: correction", lambda a: a.var(1), lambda a: a.var(1, correction=0), _SQUARE),
        pair("var: std", lambda a: a.var(1), lambda a: a.std(1), _SQUARE),
        pair("max: min", lambda a: a.amax(1), lambda a: a.amin(1), _SQUARE),
        pair("max: indices", lambda a: a.max(1)[0], lambda a: a.max(1)[1], _SQUARE),
        pair("argmax: argmin", lambda a: a.argmax(1), lambda a: a.argmin(1), _SQUARE),
        pair("argmax: flat", lambda a: a.argmax(), lambda a: a.argmax(0), _SQUARE),
        pair("cumulative: dim", lambda a: a.cumsum(0), lambda a: a.cumsum(1), _SQUARE),
        pair("cumulative: product", lambda a: a.cumsum(0), lambda a: a.cumprod(0), _SQUARE),
        pair("logsumexp: dim", lambda a: a.logsumexp(0), lambda a: a.logsumexp(1), _SQUARE),
        pair("norm: order", lambda a: a.norm(dim=1), lambda a: a.norm(1, dim=1), _SQUARE),
        pair("any: all", lambda a: (a > 0).any(1), lambda a: (a > 0).all(1), _SQUARE),
        pair("sum: dtype", lambda a: a.sum(1), lambda a: a.sum(1, dtype=torch.float64), _SQUARE),
        pair("prod: sum", lambda a: a.prod(1), lambda a: a.sum(1), _SQUARE),
        pair("loss: reduction", F.mse_loss, lambda a, b: F.mse_loss(a, b, reduction="sum"), _SQUARE, _SQUARE),
    ]


def sorting() -> list[Pair]:
    """Direction, number and part of the result."""
    edges = torch.tensor([1.0, 2.0, 3.0])
    values = torch.tensor([0.5, 1.0, 2.0])
    return [
        pair("sort: direction", lambda a: a.sort()[0], lambda a: a.sort(descending=True)[0], _SQUARE),
        pair("sort: dim", lambda a: a.sort(0)[0], lambda a: a.sort(1)[0], _SQUARE),
        pair("sort: part", lambda a: a.sort()[1], lambda a: a.sort(descending=True)[1], _SQUARE),
        pair("topk: number", lambda a: a.topk(2)[0], lambda a: a.topk(3)[0], _SQUARE),
        pair("topk: direction", lambda a: a.topk(2)[0], lambda a: a.topk(2, largest=False)[0], _SQUARE),
        pair("topk: part", lambda a: a.topk(2)[0], lambda a: a.topk(2)[1], _SQUARE),
        pair("kth value", lambda a: a.kthvalue(1)[0], lambda a: a.kthvalue(2)[0], _SQUARE),
        pair("search: side", torch.searchsorted, lambda e, v: torch.searchsorted(e, v, right=True), edges, values),
    ]


def shapes() -> list[Pair]:
    """The same elements in other places."""
    return [
        pair("permute and reshape", lambda a: a.t().contiguous(), lambda a: a.reshape(4, 3), (3, 4)),
        pair("reshape: sizes", lambda a: a.reshape(4, 6), lambda a: a.reshape(6, 4), (3, 8)),
        pair("reshape before and after", lambda a: a.t().reshape(2, 6), lambda a: a.reshape(6, 2).t(), (3, 4)),
        pair("permute: order", lambda a: a.permute(1, 2, 0), lambda a: a.permute(2, 0, 1), (3, 3, 3)),
        pair("cat: order", lambda a, b: torch.cat([a, b]), lambda a, b: torch.cat([b, a]), _SQUARE, _SQUARE),
        pair("cat: dim", lambda a, b: torch.cat([a, b]), lambda a, b: torch.cat([a, b], 1), _SQUARE, _SQUARE),
        pair("stack and cat", lambda a, b: torch.stack([a, b]), lambda a, b: torch.cat([a, b]), _SQUARE, _SQUARE),
        pair("stack: dim", lambda a, b: torch.stack([a, b]), lambda a, b: torch.stack([a, b], 1), _SQUARE, _SQUARE),
        pair(
            "cat of cat: dims",
            lambda a, b: torch.cat([torch.cat([a, b]), torch.cat([a, b])], 1),
            lambda a, b: torch.cat([torch.cat([a, b], 1), torch.cat([a, b], 1)]),
            _SQUARE,
            _SQUARE,
        ),
        pair("unsqueeze: dim", lambda a: a.unsqueeze(0), lambda a: a.unsqueeze(1), _SQUARE),
        pair("repeat: interleaved", lambda a: a.repeat(2, 1), lambda a: a.repeat_interleave(2, 0), _SQUARE),
        pair("repeat: dim", lambda a: a.repeat(2, 1), lambda a: a.repeat(1, 2), _SQUARE),
        pair("expand: dim", lambda a: a[None].expand(5, 5, 5), lambda a: a[:, None].expand(5, 5, 5), _SQUARE),
        pair("flatten: start", lambda a: a.flatten(0), lambda a: a.flatten(1), (2, 3, 4)),
        pair(
            "meshgrid",
            lambda a, b: torch.meshgrid(a, b, indexing="ij")[0],
            lambda a, b: torch.meshgrid(a, b, indexing="ij")[1],
            (3,),
            (3,),
        ),
        pair("broadcast", lambda a, b: a + b[None], lambda a, b: a + b[:, None], _SQUARE, (5,)),
    ]


def dtypes() -> list[Pair]:
    """The same operators on other numbers."""

    def typed(dtype: torch.dtype) -> Program:
        return Program(lambda: torch.nn.Softmax(0), (torch.linspace(0, 1, 5, dtype=dtype),))

    def rounded(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda a: a.to(dtype).float()

    def counted(dtype: torch.dtype) -> Program:
        return Program(lambda: torch.nn.Flatten(0), (torch.arange(4, dtype=dtype),))

    return [
        pair("dtype: of the input", typed(torch.float32), typed(torch.float64)),
        pair("dtype: of a half input", typed(torch.float16), typed(torch.bfloat16)),
        pair("dtype: of whole numbers", counted(torch.int32), counted(torch.int64)),
        pair("cast: rounds", lambda a: a * 1, rounded(torch.float16), _SQUARE),
        pair("cast: between", rounded(torch.float16), rounded(torch.bfloat16), _SQUARE),
        pair("cast: to whole numbers", lambda a: a * 1, rounded(torch.int32), _SQUARE),
        pair("cast: of the result", lambda a: a.half(), lambda a: a.bfloat16(), _SQUARE),
        pair("cast: before a sum", lambda a: a.half().sum(1).float(), lambda a: a.sum(1).half().float(), (5, 99)),
        pair("complex: part", lambda a: torch.fft.fft(a).real, lambda a: torch.fft.fft(a).imag, _SQUARE),
        pair("created: dtype", lambda a: a.new_ones(2), lambda a: a.new_ones(2, dtype=torch.int64), _SQUARE),
    ]


def pairs() -> list[Pair]:
    """Return all of them."""
    families: Any = (attention, products, arithmetic, indexing, reductions, sorting, shapes, dtypes)
    return [one for family in families for one in family()]

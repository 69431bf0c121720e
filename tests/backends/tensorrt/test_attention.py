"""Attention in plans: the ONNX that TensorRT parses computes what torch does, also where a mask hides every key."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as f

from tests.backends.tensorrt.plans import lowered, network_of, onnx_of
from tests.prepare import prepare
from trtcache.backends.onnx_operators import why_no_onnx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.backends.onnx_operators import OnnxModel

QUERY, KEY, VALUE = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 6)
SEEN = torch.rand(4, 5) > 0.4
SEEN[1], SEEN[2] = False, True
PADDED = torch.tensor([[True, True, True, False, False], [False] * 5])[:, None, None]


def added(seen: torch.Tensor) -> torch.Tensor:
    """Return a mask to add instead of one that selects."""
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


class Attention(nn.Module):
    """Attention with these options."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return f.scaled_dot_product_attention(*tensors, **self.options)


def run(model: OnnxModel, args: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the result of a model with one result in ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.serialize(()), providers=["CPUExecutionProvider"])
    given = {one.name: args[int(one.name.removeprefix("in"))].numpy() for one in session.get_inputs()}
    (result,) = session.run(None, given)
    return torch.from_numpy(result)


CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "no_mask": (Attention(), (QUERY, KEY, VALUE)),
    "causal": (Attention(is_causal=True), (QUERY, KEY, VALUE)),
    "more_queries_causal": (Attention(is_causal=True), (KEY, QUERY, QUERY)),
    "scale": (Attention(scale=0.3), (QUERY, KEY, VALUE, SEEN)),
    "bool": (Attention(), (QUERY, KEY, VALUE, SEEN)),
    "float": (Attention(), (QUERY, KEY, VALUE, added(SEEN))),
    "bool_of_keys": (Attention(), (QUERY, KEY, VALUE, PADDED)),
    "float_of_keys": (Attention(), (QUERY, KEY, VALUE, added(PADDED))),
    "lowest_number": (Attention(), (QUERY, KEY, VALUE, added(SEEN).clamp(min=torch.finfo(torch.float32).min))),
    "half": (Attention(), (QUERY.half(), KEY.half(), VALUE.half(), SEEN)),
    "half_float": (Attention(), (QUERY.half(), KEY.half(), VALUE.half(), added(SEEN).half())),
    "constant": (Attention(attn_mask=SEEN), (QUERY, KEY, VALUE)),
    "groups": (Attention(enable_gqa=True), (QUERY, KEY[:, :1], VALUE[:, :1], SEEN)),
    "two_dimensions": (Attention(), (QUERY[0, 0], KEY[0, 0], VALUE[0, 0])),
    "three_dimensions": (Attention(), (QUERY[0], KEY[0], VALUE[0])),
    "three_dimensions_bool": (Attention(), (QUERY[0], KEY[0], VALUE[0], SEEN.expand(3, 4, 5))),
    "three_dimensions_float": (Attention(), (QUERY[0], KEY[0], VALUE[0], added(SEEN))),
    "three_dimensions_groups": (Attention(enable_gqa=True), (QUERY[0], KEY[0, :1], VALUE[0, :1])),
}


@pytest.mark.parametrize(("model", "args"), CASES.values(), ids=CASES)
def test_attention_in_onnx_is_that_of_torch(model: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
    """A row without a visible key is zero, as in torch, and not a mean of hidden values or NaN; TensorRT parses it."""
    request = prepare(model, args, backend="tensorrt_rtx", target="sm_89")
    assert list(request.division.left) == []
    found = onnx_of(lowered(model, args))
    expected = model(*args)
    tolerance = 1e-2 if expected.dtype is torch.float16 else 1e-4
    torch.testing.assert_close(run(found, args), expected, rtol=tolerance, atol=tolerance)
    assert network_of(found).definition.num_outputs == 1


class Layers(nn.Module):
    """Two layers of attention: NaN of a row in the first would be in every row of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 24), nn.Linear(8, 24)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            query, key, value = layer(x).unsqueeze(1).chunk(3, -1)
            x = f.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None]).squeeze(1)
        return x


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_batch_that_is_padded_on_the_left_of_any_length(kind: str) -> None:
    """Its first tokens see nothing."""
    model, sizes = Layers().eval(), {1: torch.export.Dim("length", min=2, max=64)}
    seen = torch.ones(6, 6).tril().bool().repeat(2, 1, 1)
    seen[1, :, :2] = False
    x, mask = torch.randn(2, 6, 8), seen if kind == "bool" else added(seen)
    example = (x[:, :4], mask[:, :4, :4])
    shapes = {"x": sizes, "mask": {1: sizes[1], 2: sizes[1]}}
    program = lowered(model, example, dynamic_shapes=shapes)
    found = onnx_of(program)
    for args in (example, (x, mask)):
        torch.testing.assert_close(run(found, args), model(*args), rtol=1e-4, atol=1e-4)


def test_attention_of_more_dimensions_stays_in_torch() -> None:
    """The build does not fail."""
    args = (QUERY[None], KEY[None], VALUE[None])
    request = prepare(Attention(), args, backend="tensorrt_rtx", target="sm_89")
    assert [one.why for one in request.division.left] == ["torch has no ONNX for attention of 5 dimensions"]


def test_torch_s_own_kernels_stay_in_torch_where_their_onnx_is_wrong() -> None:
    """A program that was decomposed on a GPU has them; ONNX of a mask is wrong, and of all results but the first."""
    graph = torch.fx.Graph()
    query, key, value, mask = (graph.placeholder(name) for name in ("query", "key", "value", "mask"))
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention.default
    plain, masked = (graph.call_function(kernel, (query, key, value, one, True)) for one in (None, mask))
    for call in (plain, masked):
        graph.call_function(operator.getitem, (call, 0))
    assert why_no_onnx(plain) is None
    assert why_no_onnx(masked) == f"torch's ONNX for {kernel} is wrong for a row whose mask hides every key"
    graph.call_function(operator.getitem, (plain, 1))
    assert why_no_onnx(plain) == f"torch's ONNX for {kernel} has only its first result"

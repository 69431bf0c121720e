"""Linear writes every linear layer in one form."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.cleanup import CommonSubexpressions, DeadCode, NoOps
from trtcache.lowering.rewrites.linear import Linear
from trtcache.lowering.rewrites.shapes import Shapes
from trtcache.lowering.rewrites.sizes import CanonicalSizes

BEFORE = (NoOps(), CanonicalSizes(), Shapes(), DeadCode())
X = torch.randn(2, 5, 8)
W, B = torch.randn(8, 6), torch.randn(6)
BATCH = ({0: DYNAMIC, 1: DYNAMIC},)


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: x @ model.w + model.b,
        lambda model, x: model.b + torch.matmul(x, model.w),
        lambda model, x: functional.linear(x, model.w.t(), model.b),
        lambda model, x: torch.addmm(model.b, x.view(10, 8), model.w).view(2, 5, 6),
        lambda model, x: torch.addmm(model.b.expand(10, 6), x.view(10, 8), model.w).view(2, 5, 6),
        lambda model, x: x @ model.w + model.b.view(1, 1, 6),
    ],
)
def test_every_linear_layer_is_one_addmm(function: object) -> None:
    """Matmul and add, linear and addmm end in ``reshape``, ``addmm``, ``reshape``."""
    graph = keeps_its_promise((*BEFORE, Linear()), Calls(function, w=W, b=B), X)
    again = [name for name in operators(graph) if name != "permute"]
    assert again == ["reshape", "addmm", "reshape"]


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: torch.einsum("bsd,df->bsf", x, model.w),
        lambda model, x: torch.bmm(x, model.w.expand(2, 8, 6)),
        lambda model, x: torch.bmm(x.view(1, 10, 8), model.w[None]).view(2, 5, 6),
    ],
)
def test_a_batch_times_one_matrix_is_one_product(function: object) -> None:
    """No batched product is left."""
    graph = keeps_its_promise((*BEFORE, Linear()), Calls(function, w=W), X)
    assert "mm" in operators(graph)
    assert "bmm" not in operators(graph)


def test_symbolic_sizes_stay_symbolic() -> None:
    """A batched product with one matrix is fused for batches of any size."""
    model = Calls(lambda model, x: torch.bmm(x, model.w.expand(x.shape[0], 8, 6)) + model.b, w=W, b=B)
    passes = (*BEFORE, Linear(), Shapes(), DeadCode(), Linear())
    graph = keeps_its_promise(passes, model, X, dynamic=BATCH, calls=[(torch.randn(3, 4, 8),)])
    assert operators(graph)[-3:] == ["reshape", "addmm", "reshape"]


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: torch.add(x @ model.w, model.b, alpha=2),
        lambda model, x: x @ model.w + model.b[:1],
        lambda model, x: x @ model.w + model.b.double(),
        lambda model, x: (x @ model.w + model.b, x @ model.w),
        lambda model, x: (x @ model.w).view(5, 2, 6).transpose(0, 1) + model.b,
        lambda model, x: x @ model.w + x[..., :6],
    ],
)
def test_other_sums_stay(function: object) -> None:
    """Another factor, shape, dtype or user, or no vector: the addition is not a bias."""
    merged = (*BEFORE, CommonSubexpressions(), Linear())
    assert "add" in operators(keeps_its_promise(merged, Calls(function, w=W, b=B), X))


def test_a_number_is_no_bias() -> None:
    """A size that is added stays a number."""
    model = Calls(lambda model, x: (x @ model.w).sum() + x.shape[0], w=W)
    assert operators(keeps_its_promise((*BEFORE, Linear()), model, X, dynamic=BATCH))[-1] == "add"


def test_a_bias_that_is_one_row_is_a_vector() -> None:
    """What is computed as a row is reshaped to the vector that ``addmm`` adds."""
    model = Calls(lambda model, x: x[0] @ model.w + model.b.view(1, 6) * 2, w=W, b=B)
    assert operators(keeps_its_promise((*BEFORE, Linear()), model, X))[-2:] == ["reshape", "addmm"]


def test_flatten_and_linear_are_a_reshape_and_one_product() -> None:
    """What a classifier ends with is one reshape, for batches of any size."""
    model = Calls(lambda model, x: model.last(x.flatten(1)), last=torch.nn.Linear(40, 3))
    graph = keeps_its_promise((*BEFORE, Linear()), model, X, dynamic=({0: DYNAMIC},), calls=[(torch.randn(7, 5, 8),)])
    assert operators(graph) == ["sym_size", "reshape", "permute", "addmm"]


def test_matmul_and_add_is_a_linear_layer() -> None:
    """Only this pass gives ``x @ w + b`` and ``addmm`` the same key."""
    one = Calls(lambda model, x: x @ model.w + model.b, w=W, b=B)
    only_with("linear", one, Calls(lambda model, x: torch.addmm(model.b, x, model.w), w=W, b=B), X[0])


def test_einsum_is_matmul() -> None:
    """Only this pass gives an einsum with one matrix and a matmul the same key, for batches of any size."""
    one = Calls(lambda model, x: torch.einsum("bsd,df->bsf", x, model.w), w=W)
    only_with("linear", one, Calls(lambda model, x: x @ model.w, w=W), X, dynamic=BATCH)

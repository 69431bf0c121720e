"""Assertions on numbers that are read from tensors: where torch raises, so does the engine."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import trtcache
from tests.guards.cases import Calls, answers, outcomes
from trtcache.integrations import torch_compile
from trtcache.lowering import lower
from trtcache.lowering.capture import preserved_hooks
from trtcache.testing.interpreter import _GRAPHS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

FOUR = torch.arange(4.0)


def check(condition: Any) -> None:
    """Assert a condition."""
    torch._check(condition)  # type: ignore[no-untyped-call]  # torch's


def read(tensor: Tensor) -> Any:
    """Return the number in a tensor."""
    return tensor.item()


def _equal(n: Tensor) -> Tensor:
    check(n.item() == 4)
    return n * 2


def _equal_size(n: Tensor) -> Tensor:
    size = read(n)
    check(size == 4)
    return torch.zeros(size) + 1


def _between(n: Tensor) -> Tensor:
    number = n.item()
    check(number > 2)
    check(number < 6)
    return n * number


def _unequal(n: Tensor) -> Tensor:
    check(n.item() != 3)
    return n * 3


def _nested(n: Tensor) -> Tensor:
    number = n.item()
    check(((number > 2) & (number < 6)) | (number == 0))
    return n * 3


def _even(n: Tensor) -> Tensor:
    check(n.item() % 2 == 0)
    return n * 3


def _half(n: Tensor) -> Tensor:
    check(n.item() // 2 == 2)
    return n * 3


def _fraction(n: Tensor) -> Tensor:
    check(n.float().item() > 2.5)
    return n * 2


def _sliced(n: Tensor) -> Tensor:
    size = read(n)
    check(size >= 0)
    check(size <= 8)
    return torch.arange(8)[:size]


def _split(n: Tensor) -> tuple[Tensor, ...]:
    size = read(n)
    check(size >= 0)
    check(size <= 10)
    return torch.split(torch.arange(10), [size, 6])


def _of_tensor(n: Tensor) -> Tensor:
    torch._assert_async(n == 4)
    return n * 2


def _of_tensor_with_message(n: Tensor) -> Tensor:
    torch._assert_async(n > 3, "too small")
    return n * 2


def _boolean(n: Tensor) -> Tensor:
    check((n > 3).item())
    return n * 2


def _counted(n: Tensor) -> Tensor:
    check((torch.arange(8) < n).nonzero().shape[0] == 4)
    return n * 2


def _counted_and_read(n: Tensor, m: Tensor) -> Tensor:
    check((torch.arange(8) < n).nonzero().shape[0] == m.item())
    return n * 2


def _both(n: Tensor, m: Tensor) -> Tensor:
    first, second = read(n), read(m)
    check(first == second)
    return torch.zeros(first) + torch.ones(second)


def _sum(n: Tensor, m: Tensor) -> Tensor:
    check(n.item() + m.item() == 8)
    return n * 2 + m


def _product(n: Tensor, m: Tensor) -> Tensor:
    check(n.item() * m.item() == 16)
    return n * 2 + m


def _ordered(n: Tensor, m: Tensor) -> Tensor:
    check(n.item() <= m.item())
    return n * 2 + m


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "added": lambda n: torch.arange(n.item()) + FOUR,
    "viewed": lambda n: torch.arange(16).view(n.item(), 4),
    "viewed by the rest": lambda n: torch.arange(16).view(n.item(), -1),
    "two added": lambda n, m: torch.zeros(n.item()) + torch.ones(m.item()),
    "multiplied": lambda n, m: torch.ones(3, n.item()) @ torch.ones(m.item(), 2),
    "stacked": lambda n: torch.stack([torch.zeros(n.item()), torch.ones(4)]),
    "masked": lambda n: FOUR[n > FOUR] + FOUR,
    "equal": _equal,
    "equal size": _equal_size,
    "between": _between,
    "unequal": _unequal,
    "nested": _nested,
    "even": _even,
    "half": _half,
    "fraction": _fraction,
    "sliced": _sliced,
    "split": _split,
    "of a tensor": _of_tensor,
    "of a tensor with a message": _of_tensor_with_message,
    "boolean": _boolean,
    "counted": _counted,
    "counted and read": _counted_and_read,
    "both": _both,
    "sum": _sum,
    "product": _product,
    "ordered": _ordered,
}
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, -1)
PAIRED = (0, 1, 2, 4, 6)
LOST_BY_DYNAMO = {"counted and read"}  # torch 2.13 asserts that a number is equal to itself


def _calls(function: Callable[..., Any]) -> list[tuple[Tensor, ...]]:
    count = function.__code__.co_argcount
    numbers = NUMBERS if count == 1 else PAIRED
    return [tuple(map(torch.tensor, given)) for given in itertools.product(numbers, repeat=count)]


def _example(function: Callable[..., Any]) -> tuple[Tensor, ...]:
    return (torch.tensor(4),) * function.__code__.co_argcount


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_answers_what_torch_answers(name: str, interpreter: str, tmp_path: Path) -> None:
    """A compiled program answers exactly where the exported program does, and raises where that raises."""
    function = FUNCTIONS[name]
    program = torch.export.export(Calls(function), _example(function), strict=False)
    compiled = trtcache.compile(program, backend=interpreter, cache=tmp_path)
    eager = program.module()
    found = outcomes(compiled, eager, _calls(function), refused=Exception)
    assert found["right"] == sum(answers(eager, args) for args in _calls(function))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_model_is_right_or_raises(name: str, interpreter: str, tmp_path: Path) -> None:
    """No number leads to an answer that the model does not give; what export ruled out raises (broadcasts of one)."""
    function = FUNCTIONS[name]
    compiled = trtcache.compile(Calls(function), _example(function), backend=interpreter, cache=tmp_path)
    assert outcomes(compiled, function, _calls(function), refused=Exception)["right"]


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - LOST_BY_DYNAMO))
def test_torch_compile_is_right_or_raises(name: str, interpreter: str, tmp_path: Path) -> None:
    """The same programs, in the graphs that Dynamo makes of them."""
    function = FUNCTIONS[name]
    torch._dynamo.reset()
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache"}
    compiled = torch.compile(Calls(function), backend=torch_compile.backend, options=options)
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled(*_example(function))
        assert outcomes(compiled, function, _calls(function), refused=Exception)["right"]
    torch._dynamo.reset()


def _double(x: Tensor) -> Tensor:
    mask = x < 0
    return x.clone().index_put((mask,), x[mask] * 2)


def _columns(x: Tensor, values: Tensor) -> Tensor:
    table = x.view(3, 2).clone()
    table[:, x[:2] < 0] = values
    return table


ASSIGNMENTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "from another index": (lambda x: x.clone().index_put((x < 0,), x[x > 0]), True),
    "a fixed number": (lambda x: x.clone().index_put((x < 0,), x[:2]), True),
    "of rows": (lambda x: x.view(3, 2).clone().index_put((x[:3] < 0,), x[:4].view(2, 2)), True),
    "behind a dimension": (lambda x: _columns(x, x[:2]), True),
    "from the same index": (_double, False),
    "one for all": (lambda x: x.clone().index_put((x < 0,), x[:1]), False),
    "one column for all": (lambda x: _columns(x, x[:3, None]), False),
}
MIXED = torch.tensor([-1.0, 3.0, -2.0, 4.0, 5.0, 6.0])


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_values_for_a_boolean_index_are_counted(name: str, interpreter: str, tmp_path: Path) -> None:
    """Compiled code reads as many values as the index selects, so the graph asserts that there are as many, or one."""
    function, is_asserted = ASSIGNMENTS[name]
    read = {node.target for node in lower(Calls(function), (MIXED,)).order}
    assert (torch.ops.aten._local_scalar_dense.default in read) is is_asserted
    module = trtcache.compile(Calls(function), (MIXED,), backend=interpreter, cache=tmp_path)
    calls = [(MIXED * sign + more,) for sign in (1, -1) for more in (-9, -3, 0, 1.5, 9)]
    assert outcomes(module, function, calls, refused=Exception)["right"] == sum(answers(function, one) for one in calls)


TABLE = torch.arange(1.0, 25).reshape(4, 6)


def _changed(n: Tensor) -> Tensor:
    table = TABLE.clone()
    table[: n.item()] *= TABLE
    return table


def _nested_slices(n: Tensor, m: Tensor) -> Tensor:
    part = TABLE[: n.item()]
    return part[: m.item()] * part


def _equal_slices(n: Tensor, m: Tensor) -> Tensor:
    first, second = TABLE[: n.item()], TABLE[: m.item()]
    check(first.shape[0] == second.shape[0])
    return first.sum() * second.sum()


def _unused(n: Tensor) -> Tensor:
    _ = TABLE[: n.item()] + TABLE
    return TABLE * n


WIDE = torch.arange(80.0).reshape(2, 8, 5)
SLICES: dict[str, Callable[..., Any]] = {
    "multiplied": lambda n: TABLE[: n.item()] * TABLE,
    "from a number": lambda n: TABLE[n.item() - 4 :] + TABLE,
    "the last": lambda n: TABLE[-n.item() :] * TABLE,
    "columns": lambda n: TABLE[:, : n.item() + 2] * TABLE,
    "of both dimensions": lambda n: TABLE[: n.item(), : n.item() + 2] * TABLE,
    "arithmetic": lambda n: TABLE[: n.item() * 2 - 4] * TABLE,
    "selected": lambda n: torch.where(TABLE > 3, TABLE[: n.item()], TABLE),
    "expanded": lambda n: TABLE[: n.item()].expand(4, 6) * 2,
    "copied": lambda n: torch.zeros(4, 6).copy_(TABLE[: n.item()]),
    "changed in place": _changed,
    "concatenated": lambda n: torch.cat([TABLE[: n.item()], TABLE], 1),
    "stacked": lambda n: torch.stack([TABLE[: n.item()], TABLE]),
    "a matrix": lambda n: TABLE.t() @ TABLE[: n.item()],
    "a batch of matrices": lambda n: torch.bmm(TABLE.t()[None], TABLE[None, : n.item()]),
    "a layer": lambda n: torch.nn.functional.linear(TABLE[:, : n.item() + 2], TABLE),
    "normalized": lambda n: torch.nn.functional.layer_norm(TABLE[:, : n.item() + 2], (6,)),
    "a loss": lambda n: torch.nn.functional.cross_entropy(TABLE, torch.arange(4)[: n.item()]),
    "attention": lambda n: torch.nn.functional.scaled_dot_product_attention(
        WIDE[:, :4], WIDE[:, : n.item()], WIDE[:, :4]
    ),
    "a cache": lambda n: WIDE[:, :3] @ WIDE[:, : n.item() + 4].transpose(-1, -2) + torch.zeros(8),
    "behind a softmax": lambda n: TABLE[: n.item()].softmax(0) + TABLE,
    "behind a flip": lambda n: TABLE[: n.item()].flip(0) * TABLE,
    "reshaped": lambda n: TABLE[: n.item()].reshape(4, 3, 2) * 2,
    "of a slice": _nested_slices,
    "of another number": lambda n, m: TABLE[: n.item()] * TABLE[: m.item()],
    "checked": _equal_slices,
    "unused": _unused,
}


@pytest.mark.parametrize("is_exported", [False, True], ids=["model", "program"])
@pytest.mark.parametrize("name", SLICES)
def test_a_slice_that_the_example_needs_whole_is_checked(
    name: str, is_exported: bool, interpreter: str, tmp_path: Path
) -> None:
    """An engine answers where the exported program does: for other numbers the slice is not the whole tensor."""
    function = SLICES[name]
    program = _exported(function)
    model, example = (program, ()) if is_exported else (Calls(function), _two_tensors(function))
    compiled = trtcache.compile(model, example, backend=interpreter, cache=tmp_path)
    found = outcomes(compiled, function, _calls(function), refused=Exception)
    assert found["right"] >= sum(answers(program.module(), args) for args in _calls(function))
    assert found["refused"]


@pytest.mark.parametrize("name", SLICES)
def test_the_size_of_such_a_slice_is_asserted(name: str, interpreter: str, tmp_path: Path) -> None:
    """The assertions alone raise: compiled code reads tensors by the sizes of the example, and checks no others."""
    function = SLICES[name]
    program = _exported(function)
    trtcache.compile(program, backend=interpreter, cache=tmp_path)
    graph_module = copy.deepcopy(_GRAPHS[-1][0])
    graph_module.graph.output_node().args = ((),)
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    for numbers in _calls(function):
        assert answers(graph_module, numbers) is answers(program.module(), numbers), numbers


def _exported(function: Callable[..., Any]) -> torch.export.ExportedProgram:
    try:
        with preserved_hooks():
            return torch.export.export(Calls(function), _two_tensors(function), strict=False)
    except GuardOnDataDependentSymNode as error:  # torch 2.11
        pytest.skip(f"torch cannot export it: {str(error)[:200]}")


def _two_tensors(function: Callable[..., Any]) -> tuple[Tensor, ...]:
    return tuple(one.clone() for one in _example(function))  # torch.export takes one that is given twice for one


@pytest.mark.parametrize("rows", [1, 4, 6])
def test_a_slice_as_long_as_a_varying_size_is_checked(rows: int, interpreter: str, tmp_path: Path) -> None:
    """So is a slice that must be as long as an input is at each call."""
    model = Calls(lambda x, n: x[: n.item()] * x)
    options: dict[str, Any] = {"dynamic_shapes": (({0: torch.export.Dim.AUTO}, None),), "cache": tmp_path}
    compiled = trtcache.compile(model, (TABLE, torch.tensor(4)), backend=interpreter, **options)
    calls = [(torch.rand(rows, 6), torch.tensor(number)) for number in NUMBERS]
    found = outcomes(compiled, model, calls, refused=Exception)
    assert rows == 1 or found["right"] == sum(number >= rows for number in NUMBERS)


def test_what_keeps_the_size_of_a_slice_is_removed() -> None:
    """An ``expand`` to the sizes that a slice has anyway."""
    program = lower(Calls(lambda x, n: x[: n.item()].expand(-1, 6) * 2), (TABLE, torch.tensor(4)))
    assert torch.ops.aten.expand.default not in {node.target for node in program.order}


def _many(n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    number, other = read(n), read(m)
    check(number != 2)
    check(number + other <= 10)
    check(other >= 0)
    torch._assert_async(n < 6)
    return torch.zeros(other).sum() + n, n * number


@pytest.mark.slow
def test_an_engine_of_aot_inductor_asserts(engines: Path) -> None:
    """Compiled code raises as torch does, from C++."""
    program = torch.export.export(Calls(_many), _example(_many), strict=False)
    compiled = trtcache.compile(program, cache=engines)
    eager = program.module()
    found = outcomes(compiled, eager, _calls(_many), refused=Exception)
    assert found["right"] == sum(answers(eager, args) for args in _calls(_many))
    assert found["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multiplied", "the last", "columns", "a cache", "of a slice"])
def test_an_engine_of_aot_inductor_asserts_the_size_of_a_slice(name: str, engines: Path) -> None:
    """Inductor keeps a slice that the example needs whole, and its assertion."""
    function = SLICES[name]
    program = _exported(function)
    compiled = trtcache.compile(program, cache=engines)
    eager = program.module()
    found = outcomes(compiled, function, _calls(function), refused=Exception)
    assert found["right"] == sum(answers(eager, args) for args in _calls(function))
    assert found["refused"]

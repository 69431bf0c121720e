"""Changes after which a model has the same operators for the example arguments, and is another program all the same."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import trtcache
from tests.comparing import difference
from trtcache.errors import ExportError, GuardError
from trtcache.lowering import random_states

if TYPE_CHECKING:
    from pathlib import Path

Compile = Callable[..., trtcache.CompiledModule]
LAST = torch.channels_last


@pytest.fixture
def compiled(interpreter: str, tmp_path: Path) -> Compile:
    """``trtcache.compile`` with the interpreter and a cache of this test's own."""

    def compile_(model: nn.Module, x: torch.Tensor, direct: str = "on", **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(model, (x,), backend=interpreter, cache=tmp_path / "cache", direct=direct, **kwargs)

    return compile_


class Chooses(nn.Module):
    """Applies a function that is an attribute, so that no code changes with it, and writes to the result."""

    def __init__(self, apply: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.apply_to, self.args, self.kwargs = apply, args, kwargs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.apply_to(x, *self.args, **self.kwargs)
        y.mul_(2)
        return x + 1


def image() -> torch.Tensor:
    """Return an image whose channels are last in memory."""
    return torch.arange(8.0).reshape(1, 2, 2, 2).contiguous(memory_format=LAST)


def matrix() -> torch.Tensor:
    """Return a matrix."""
    return torch.arange(12.0).reshape(3, 4)


PAIRS: dict[str, tuple[Callable[[], torch.Tensor], nn.Module, nn.Module, Callable[[torch.Tensor], torch.Tensor]]] = {
    "view, reshape": (
        matrix,
        Chooses(torch.Tensor.view, 12),
        Chooses(torch.Tensor.reshape, 12),
        lambda x: x.t().contiguous().t(),
    ),
    "view, flatten": (
        matrix,
        Chooses(torch.Tensor.view, 12),
        Chooses(torch.flatten),
        lambda x: x.t().contiguous().t(),
    ),
    "an alias, contiguous": (
        matrix,
        Chooses(torch.Tensor.view_as, matrix()),
        Chooses(torch.Tensor.contiguous),
        lambda x: x.t().contiguous().t(),
    ),
    "to another layout, which it has": (
        image,
        Chooses(torch.Tensor.to, torch.float32),
        Chooses(torch.Tensor.to, memory_format=LAST),
        torch.Tensor.contiguous,
    ),
    "contiguous in another layout, which it has as well": (
        lambda: torch.arange(2.0).reshape(1, 2, 1, 1),
        Chooses(torch.Tensor.contiguous),
        Chooses(torch.Tensor.contiguous, memory_format=LAST),
        torch.Tensor.clone,
    ),
    "an operator, a method": (
        matrix,
        Chooses(torch.ops.aten.view.default, [12]),
        Chooses(torch.Tensor.reshape, [12]),
        lambda x: x.t().contiguous().t(),
    ),
}


def answer(module: Callable[..., Any], x: torch.Tensor) -> Any:
    """Return the result of a call, or the class of its error."""
    try:
        return module(x)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return type(error)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("is_back", [False, True], ids=["there", "back"])
def test_calls_in_other_layouts_are_answered_as_without_direct_mode(
    compiled: Compile, name: str, *, is_back: bool
) -> None:
    """Guards on layouts come from the functions that were called, not from the operators below them."""
    make, first, second, other = PAIRS[name]
    if is_back:
        first, second = second, first
    compiled(first, make())
    hit, off = compiled(second, make()), compiled(second, make(), direct="off")
    for call in (make(), other(make())):
        got, wanted = answer(hit, call.clone()), answer(off, call.clone())
        assert got == wanted if isinstance(wanted, type) else difference(wanted, got) is None
    assert compiled(second, make()).report.direct == "hit"


def test_a_replaced_method_is_no_hit(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a function of C for another, so that no code changes."""

    class Views(nn.Module):
        """Views its input as a vector."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.view(12)
            y.mul_(2)
            return x + 1

    compiled(Views(), matrix())
    monkeypatch.setattr(torch.Tensor, "view", torch.Tensor.reshape)
    module = compiled(Views(), matrix())
    assert module.report.direct == "miss: other functions of torch are called, which have the same operators here"


class Clones(nn.Module):
    """Copies the transposed input; as ``contiguous`` it does not copy one of size 1."""

    def __init__(self, *, clones: bool) -> None:
        super().__init__()
        self.clones = clones

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.t()
        y = y.clone(memory_format=torch.contiguous_format) if self.clones else y.contiguous()
        y.mul_(2)
        return x + 1


def test_a_dynamic_size_of_one_is_answered_as_without_direct_mode(compiled: Compile) -> None:
    """The guard on the size is that of ``contiguous``."""
    shapes = ({0: torch.export.Dim("B", min=1)},)
    compiled(Clones(clones=True), matrix(), dynamic_shapes=shapes)
    hit = compiled(Clones(clones=False), matrix(), dynamic_shapes=shapes)
    off = compiled(Clones(clones=False), matrix(), dynamic_shapes=shapes, direct="off")
    assert answer(off, matrix()[:1]) is GuardError
    assert answer(hit, matrix()[:1]) is GuardError


class Scales(nn.Module):
    """Multiplies by a constant, which is not registered, as a function reads it."""

    def __init__(self, table: torch.Tensor, read: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.__dict__["table"], self.read = table, read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.read(self.table)


@pytest.mark.parametrize(
    ("read", "before", "after"),
    [
        (
            lambda table: table.as_strided((4,), (1,), 0),
            torch.full((4,), 2.0),
            torch.tensor([9.0, 9.0, 2.0, 2.0, 2.0, 2.0])[2:],
        ),
        (
            lambda table: table.view(torch.float32),
            torch.zeros(16, dtype=torch.uint8),
            torch.zeros(32, dtype=torch.uint8)[1:17],
        ),
        (
            lambda table: torch.as_strided_copy(table, (4,), (1,), 0),
            torch.full((4,), 2.0),
            torch.tensor([9.0, 2.0, 2.0, 2.0, 2.0])[1:],
        ),
    ],
    ids=["as_strided", "view of bytes", "as_strided_copy"],
)
def test_the_place_of_a_constant_in_its_memory_counts(
    compiled: Compile, read: Callable[[torch.Tensor], torch.Tensor], before: torch.Tensor, after: torch.Tensor
) -> None:
    """The same values at another offset are another constant."""
    x = torch.ones(4)
    compiled(Scales(before, read), x)
    with pytest.raises(ExportError):
        compiled(Scales(after, read), x, direct="off")
    with pytest.raises(ExportError):
        compiled(Scales(after, read), x)


class WritesMemory(nn.Module):
    """Writes into the memory of its constant without torch, after it has read it."""

    def __init__(self, memory: Any, gain: float) -> None:
        super().__init__()
        self.memory, self.gain = memory, gain
        self.__dict__["table"] = torch.frombuffer(memory, dtype=torch.float32, count=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.table
        self.memory[:4] = [self.gain] * 4
        return y


@pytest.mark.parametrize(
    "make", [lambda: (ctypes.c_float * 4)(2, 2, 2, 2), lambda: np.full(400_000, 2, np.float32)], ids=["ctypes", "array"]
)
def test_memory_that_forward_writes_turns_it_off(compiled: Compile, make: Callable[[], Any]) -> None:
    """A program has the content of a constant at the end of its export."""
    for gain in (2.0, 3.0):
        module = compiled(WritesMemory(make(), gain), torch.ones(4))
    off = compiled(WritesMemory(make(), 3.0), torch.ones(4), direct="off")
    assert module.report.direct == "off: forward changes the memory of a constant"
    assert difference(off(torch.ones(4)), module(torch.ones(4))) is None


class ReadsOption(nn.Module):
    """Reads an option of Dynamo by its public name."""

    by = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.by if torch.compiler.config.capture_scalar_outputs else 2.0)


def test_an_option_that_another_one_stands_for_turns_it_off(compiled: Compile) -> None:
    """``torch.compiler.config`` reads some options of Dynamo, which an export sets."""
    module = compiled(ReadsOption(), torch.ones(4))
    assert module.report.direct == "off: forward reads an option of Dynamo, which an export sets"


class Draws(nn.Module):
    """Draws numbers outside of torch, as a dropout of layers does, and seeds torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return x * 2 if random.random() < 2 and np.random.rand() < 2 else x  # as models do


@pytest.mark.parametrize("direct", ["off", "on"])
def test_generators_are_after_a_compile_as_before(
    compiled: Compile, direct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a script draws after it does not depend on the cache, unless other threads run, as of other tests."""
    monkeypatch.setattr(random_states, "is_alone", lambda: True)
    compiled(Draws(), torch.ones(4))
    random.seed(7)
    np.random.seed(7)  # the global generator
    torch.manual_seed(7)
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"], torch.initial_seed()  # type: ignore[index]
    module = compiled(Draws(), torch.ones(4), direct=direct)
    after = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"], torch.initial_seed()  # type: ignore[index]
    assert module.report.direct == ("hit" if direct == "on" else "off: direct=off")
    assert before == after

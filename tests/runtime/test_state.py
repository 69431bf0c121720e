"""State that a call changes, and what a call returns of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Counters(nn.Module):
    """Returns buffers as they were before the call that changes them, in many forms."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("table", torch.zeros(2, 3))
        self.register_buffer("calls", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(2, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = (self.total.clone(), self.total[:2].clone(), self.total.reshape(-1).clone(), self.table.clone().t())
        flags = (self.calls.clone(), self.seen.clone())
        self.total.add_(x)
        self.table.add_(x)
        self.calls.add_(1)
        self.seen.logical_not_()
        return (*old, *flags, self.total + 0, self.total)


@pytest.mark.slow
def test_old_state_is_returned_as_it_was(engines: Path) -> None:
    """A buffer's content before a call stays what it was, in every form in which it is returned, call after call."""
    model, x = Counters().eval(), torch.ones(3)
    compiled = trtcache.compile(Counters().eval(), (x,), cache=engines)
    kept = []
    for _ in range(3):
        expected, found = model(x), compiled(x)
        kept.append((found[:6], [one.clone() for one in expected[:6]]))
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert torch.equal(one, other), place
    assert all(torch.equal(one, other) for found, expected in kept for one, other in zip(found, expected, strict=True))


class Delays(nn.Module):
    """Shifts a number through three buffers, and exchanges two others with each other."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("first", "second", "third", "left", "right"):
            self.register_buffer(name, torch.arange(4.0) + ord(name[0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.first + self.second * 2 + self.third * 3
        self.third.copy_(self.second)
        self.second.copy_(self.first)
        self.first.copy_(x)
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left)
        return result


class Exchanged(nn.Module):
    """Exchanges the contents of a buffer and of its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.total.clone()
        self.total.copy_(x)
        x.copy_(old)
        return old * 2


_FLOAT8 = torch.float16 if torch.__version__ < "2.13" else torch.float8_e4m3fn


class OldContents(nn.Module):
    """Returns old contents of buffers of several dtypes, and copies of one that Inductor removes."""

    def __init__(self) -> None:
        super().__init__()
        inf, nan = float("inf"), float("nan")
        parts = [complex(inf, 0.0), complex(-0.0, -0.0), complex(1.0, inf), complex(nan, 1.0)]
        self.register_buffer("plain", torch.tensor([-0.0, 1.0, nan, inf]))
        self.register_buffer("complex64", torch.tensor(parts))
        self.register_buffer("complex128", torch.tensor(parts, dtype=torch.complex128))
        # C++ code of torch 2.11 lacks the types of float8.
        self.register_buffer("float8", torch.tensor([-0.0, 1.0, nan, 2.0]).to(_FLOAT8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plain = self.plain
        old = [plain.clone(), self.complex64.clone(), self.complex128.clone(), self.float8.clone()]
        old += [torch.cat([plain]), plain.repeat(1), plain.to(plain.dtype, copy=True), torch.stack([plain])]
        old += [nn.functional.pad(plain, (0, 0))]
        for buffer in (self.plain, self.complex64, self.complex128, self.float8):
            buffer.copy_(x + 1)
        return tuple(old)


_SAME: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty_cat": lambda one: torch.cat([one, one.new_empty(0, 4)]),
    "empty_slice": lambda one: torch.cat([one[:0], one]).reshape(4, 4),
    "hstack": lambda one: torch.hstack([one, one[:, :0]]).clone(),
    "narrow_copy": lambda one: torch.narrow_copy(one, 0, 0, 4),
    "unbind_copy": lambda one: torch.unbind_copy(one)[1],
    "view_copy": lambda one: torch.view_copy(one, dtype=torch.int32),
    "transposed": lambda one: one.t().clone(),
    "conjugated": lambda one: torch.view_as_complex(one.clone().view(4, 2, 2)).conj(),
    "gather": lambda one: one.gather(0, torch.arange(4)[:, None].expand(4, 4)),
    "index_select": lambda one: one.index_select(0, torch.arange(4)),
    "expand": lambda one: one.expand(1, 4, 4).contiguous(),
    "roll": lambda one: one.roll(0),
    "tile": lambda one: one.tile(1),
    "stack": lambda one: torch.stack([one]),
    "split": lambda one: torch.cat(one.split(1)),
    "where": lambda one: torch.where(torch.tensor(True), one, one + 1),
    "masked_fill": lambda one: one.masked_fill(torch.tensor(False), 0.0),
    "arithmetic": lambda one: one + 0,
    "power": lambda one: one**1,
    "double": lambda one: one.double().float(),
    "clamp": lambda one: one.clamp(min=-math.inf),
    "triu": lambda one: one.triu(-10),
    "einsum": lambda one: torch.einsum("ij->ji", one).clone(),
    "as_strided_copy": lambda one: torch.as_strided_copy(one, (2, 3), (4, 1)),
    "unfold": lambda one: one.unfold(0, 4, 1),
    "product": lambda one: one[:, :1] @ torch.ones(1, 1),
    "reduction": lambda one: one[None].amax(0),
    "cumsum": lambda one: one[:1].cumsum(0),
    "pool": lambda one: nn.functional.avg_pool2d(one[None, None], 1)[0, 0],
    "slice_scatter": lambda one: torch.slice_scatter(one + 1, one, 0, 0, 4),
}
"""Operators that return their argument, a part of it, or a view, and that Inductor may remove."""


class OldCopies(nn.Module):
    """Returns old contents through many operators, and keeps them in buffers for two calls, also in exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("now", torch.arange(16.0).reshape(4, 4) + 1)
        for name, function in _SAME.items():
            for calls in ("one", "two"):
                self.register_buffer(f"{name}_{calls}", torch.zeros_like(function(self.now)).clone())
        for number in range(3):
            self.register_buffer(f"turn{number}", torch.full((3,), number, dtype=torch.uint8))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        old = {name: function(self.now) for name, function in _SAME.items()}
        for name, one in old.items():
            self.get_buffer(f"{name}_two").copy_(self.get_buffer(f"{name}_one"))
            self.get_buffer(f"{name}_one").copy_(one)
        turned = [torch.narrow_copy(self.get_buffer(f"turn{(number + 1) % 3}"), 0, 0, 3) for number in range(3)]
        for number, one in enumerate(turned):
            self.get_buffer(f"turn{number}").copy_(one)
        self.now.add_(x)
        return [*old.values(), *turned, self.get_buffer("transposed_one")]


@pytest.mark.slow
def test_an_old_content_keeps_its_value_whatever_operator_returns_it(engines: Path) -> None:
    """Results keep it after later calls, and changes of them and of the argument leave the buffers as they are."""
    model, compiled = OldCopies(), trtcache.compile(OldCopies(), (torch.ones(4, 4),), cache=engines)
    kept = []
    for number in range(3):
        x = torch.full((4, 4), number + 2.0)
        kept.append(([_bits(one) for one in model(x)], compiled(x)))
        x.fill_(77)
        for name, one in model.named_buffers():
            assert _bits(one) == _bits(dict(compiled.named_buffers())[name]), name
    assert all(expected == [_bits(one) for one in found] for expected, found in kept)
    for _, found in kept:
        for one in found:
            one.fill_(0)
    buffers = dict(compiled.named_buffers())
    assert all(_bits(one) == _bits(buffers[name]) for name, one in model.named_buffers())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Delays, Exchanged, OldContents])
def test_an_old_content_is_read_before_it_changes(kind: type[nn.Module], engines: Path) -> None:
    """It is a result, or the new content of another buffer or of an argument, call after call."""
    model, compiled = kind(), trtcache.compile(kind(), (torch.ones(4),), cache=engines)
    for number in range(3):
        inputs = [torch.full((4,), number + 2.0) for _ in range(2)]
        expected, found = (module(x) for module, x in zip((model, compiled), inputs, strict=True))
        if isinstance(expected, torch.Tensor):
            expected, found = (expected,), (found,)
        pairs = zip((*expected, inputs[0], *model.buffers()), (*found, inputs[1], *compiled.buffers()), strict=True)
        for place, (one, other) in enumerate(pairs):
            assert _bits(one) == _bits(other), place


@pytest.mark.slow
def test_an_exported_program_in_parts_reads_old_contents(engines: Path, tmp_path: Path) -> None:
    """New contents that are old ones of other buffers can be exported, and are read before those change."""
    settings = {"torch_executed_ops": ["aten.mul"]}
    compiled = trtcache.compile(Delays(), (torch.ones(4),), cache=engines, settings=settings)
    trtcache.export(compiled, tmp_path / "delays.pt2", cache=engines)
    model, loaded = Delays(), trtcache.load(tmp_path / "delays.pt2", trust="local-file", cache=engines)
    for number in range(3):
        x = torch.full((4,), number + 2.0)
        torch.testing.assert_close(loaded(x), model(x))
        found = dict(loaded.named_buffers())
        assert all(torch.equal(found[name], one) for name, one in model.named_buffers())


class Stored(nn.Module):
    """Returns a buffer after its argument was copied into it, also as a view, and another result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.cache.copy_(x)
        return self.cache, self.cache[1:], x + 1


def test_a_buffer_that_is_returned_is_not_the_argument(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The caller may use the argument's memory again."""
    x = torch.ones(4)
    found = compiled(Stored(), (torch.zeros(4),))(x)
    x.fill_(5)
    assert [one.tolist() for one in found] == [[1.0] * 4, [1.0] * 3, [2.0] * 4]


def _bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.resolve_conj().reshape(-1).view(torch.uint8).numpy())

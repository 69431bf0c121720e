"""State that a call changes, and what a call returns of it."""

from __future__ import annotations

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


class OldContents(nn.Module):
    """Returns old contents of buffers of several dtypes, and copies of one that Inductor removes."""

    def __init__(self) -> None:
        super().__init__()
        inf, nan = float("inf"), float("nan")
        parts = [complex(inf, 0.0), complex(-0.0, -0.0), complex(1.0, inf), complex(nan, 1.0)]
        self.register_buffer("plain", torch.tensor([-0.0, 1.0, nan, inf]))
        self.register_buffer("complex64", torch.tensor(parts))
        self.register_buffer("complex128", torch.tensor(parts, dtype=torch.complex128))
        self.register_buffer("float8", torch.tensor([-0.0, 1.0, nan, 2.0]).to(torch.float8_e4m3fn))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plain = self.plain
        old = [plain.clone(), self.complex64.clone(), self.complex128.clone(), self.float8.clone()]
        old += [torch.cat([plain]), plain.repeat(1), plain.to(plain.dtype, copy=True), torch.stack([plain])]
        old += [nn.functional.pad(plain, (0, 0))]
        for buffer in (self.plain, self.complex64, self.complex128, self.float8):
            buffer.copy_(x + 1)
        return tuple(old)


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
    return bytes(tensor.contiguous().view(torch.uint8).numpy())

"""Calls of compiled models, with the types that their outputs have for type checkers (``tests/test_types.py``)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, assert_type

import torch

import trtcache

if TYPE_CHECKING:
    from pathlib import Path


class Scores(NamedTuple):
    """A model's output."""

    logits: torch.Tensor
    best: torch.Tensor


class Head(torch.nn.Module):
    """A model whose ``forward`` says what it returns."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Scores:
        """Return a named tuple."""
        logits = x * scale
        return Scores(logits, logits.argmax(-1))


class Untyped(torch.nn.Module):
    """A model whose ``forward`` does not."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the input."""
        return x


def calls_of_modules(x: torch.Tensor) -> None:
    """A model's output type is kept, also by what copies a compiled module or returns it."""
    fast = trtcache.compile(Head(), (x,), {"scale": 2.0})
    assert_type(fast, trtcache.CompiledModule[Scores])
    assert_type(fast(x, scale=2.0), Scores)
    assert_type(fast(x).best, torch.Tensor)
    assert_type(fast.eval()(x), Scores)
    assert_type(fast.to("cpu")(x), Scores)
    assert_type(fast.with_weights({})(x), Scores)
    assert_type(copy.deepcopy(fast)(x), Scores)
    assert_type(trtcache.compile(torch.nn.Linear(2, 2), x)(x), torch.Tensor)
    assert_type(fast(x), str)  # type: ignore[assert-type]  # and an ignored error that is none is an error


def calls_of_unknown_types(x: torch.Tensor, program: torch.export.ExportedProgram, file: Path) -> None:
    """Where no signature says what is returned, nothing is claimed."""
    assert_type(trtcache.compile(Untyped(), x)(x), Any)
    assert_type(trtcache.compile(program)(x), Any)
    assert_type(trtcache.compile(file)(x), Any)
    assert_type(trtcache.load(file)(x), Any)
    assert_type(trtcache.load(file), trtcache.CompiledModule | trtcache.Program)


def scores(x: torch.Tensor) -> Scores:
    """Return a named tuple."""
    return Scores(x, x.argmax(-1))


def calls_of_the_torch_compile_backend(x: torch.Tensor) -> None:
    """Torch gives a function its own type; of a module it makes a callable of any type, whatever the backend."""
    assert_type(torch.compile(scores, backend="trtcache")(x), Scores)
    assert_type(torch.compile(Head(), backend="trtcache")(x), Any)

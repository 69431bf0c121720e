"""Comparison of outputs, alone and while a module is refitted."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch import nn


def difference(expected: Any, found: Any, tolerance: float = 1e-5) -> str | None:
    """Return how two outputs differ: in structure, type, dtype, shape or by more than the tolerance; None if not."""
    wanted, wanted_spec = pytree.tree_flatten(expected)
    given, given_spec = pytree.tree_flatten(found)
    if wanted_spec != given_spec:
        return f"structure {given_spec}, not {wanted_spec}"
    for index, (one, other) in enumerate(zip(wanted, given, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if why := _apart(one.detach(), other, tolerance):
                return f"leaf {index}: {why}"
        elif type(one) is not type(other) or one != other:
            return f"leaf {index}: {other!r}, not {one!r}"
    return None


def mixed_results(compiled: Any, models: tuple[nn.Module, nn.Module], x: torch.Tensor, *, seconds: float) -> list[Any]:
    """Call a module in four threads while it is refitted, and return results that are neither model's."""
    expected = [model(x) for model in models]
    stop = threading.Event()
    mixed: list[Any] = []

    def call() -> None:
        while not stop.is_set() and not mixed:
            found = compiled(x)
            if all(difference(one, found) for one in expected):
                mixed.append(found)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        compiled.refit(models[1])
        compiled.refit(models[0].state_dict())
    stop.set()
    for thread in threads:
        thread.join()
    return mixed


def _apart(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> str | None:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{other.dtype} {tuple(other.shape)}, not {one.dtype} {tuple(one.shape)}"
    loose = max(tolerance, 2e-2 if one.dtype in {torch.bfloat16, torch.float16} else 0)
    if torch.allclose(one.resolve_conj(), other, rtol=loose, atol=loose):
        return None
    return f"off by {(one - other).abs().max()}"

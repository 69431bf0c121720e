"""Sizes that are sums and multiples of others come out of a file as they were compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.export import Dim

import trtcache
from trtcache.errors import InputError, ProgramFileError

if TYPE_CHECKING:
    from pathlib import Path

D, E = Dim("d", min=2, max=50), Dim("e", min=2, max=50)


class Rows(torch.nn.Module):
    """Changes each of its inputs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.linear(x) for x in xs)


CASES: dict[str, tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...]]] = {
    "2d+1": ((2 * D + 1,), (7,), (11,)),
    "d+1": ((D + 1,), (7,), (11,)),
    "d and 3d-1": ((D, 3 * D - 1), (3, 8), (5, 14)),
    "d, 2e+1 and e": ((D, 2 * E + 1, E), (3, 11, 5), (2, 9, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_that_follow_from_others_are_written(interpreter: str, tmp_path: Path, case: str) -> None:
    """The program that torch opens has these sizes; a loaded module answers others, and refuses what fits none."""
    dims, sizes, others = CASES[case]
    path = tmp_path / "program.pt2"
    model, args = Rows(), tuple(torch.randn(size, 4) for size in sizes)
    shapes = {"xs": tuple({0: dim} for dim in dims)}
    compiled = trtcache.compile(model, args, dynamic_shapes=shapes, backend=interpreter, cache=tmp_path / "cache")
    trtcache.export(compiled, path)
    ranges = torch.export.load(path).range_constraints
    assert {len(one.free_symbols) for one in ranges} == {1}
    loaded = trtcache.load(path, trust="local-file")
    given = tuple(torch.randn(size, 4) for size in others)
    torch.testing.assert_close(loaded(*given), model(*given))
    with pytest.raises(InputError):
        loaded(*(torch.randn(size - 60 if size > 60 else 200, 4) for size in others))


class Positive(torch.nn.Module):
    """An output whose size depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2


def test_sizes_that_depend_on_values_are_not_exported(interpreter: str, tmp_path: Path) -> None:
    """The error names what works instead."""
    module = trtcache.compile(Positive(), (torch.randn(5),), backend=interpreter, cache=tmp_path / "cache")
    with pytest.raises(
        ProgramFileError, match=r"got shape .* depends on values; write the model with torch.export.save"
    ):
        trtcache.export(module, tmp_path / "program.pt2")

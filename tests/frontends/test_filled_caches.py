"""Caches outside of a model: what an export leaves in them is taken away, and eager answers with real tensors."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import trtcache

X = torch.arange(8.0).view(2, 4)
TABLES: dict[str, Any] = {"kept": 1}
TABLE_LIST: list[torch.Tensor] = []
GLOBAL_TABLE: torch.Tensor | None = None


class Plain:
    """An object with a table."""

    table: torch.Tensor | None = None


PLAIN = Plain()


class Cached(nn.Module):
    """A class that has a table and caches."""

    table: torch.Tensor | None = None
    tables: dict[int, torch.Tensor] = {}  # noqa: RUF012  # shared by design

    def __init__(self, get: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.get = get

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the table."""
        result: torch.Tensor = self.linear(x) + self.get(self)
        return result

    @functools.lru_cache(maxsize=8)  # noqa: B019  # models have that
    def computed(self) -> torch.Tensor:
        """Return the table."""
        return torch.arange(4.0)


@functools.cache
def unlimited() -> torch.Tensor:
    """Return the table."""
    return torch.arange(4.0)


@functools.lru_cache(maxsize=4)
def nested() -> tuple[int, dict[str, torch.Tensor]]:
    """Return the table inside others."""
    return 1, {"table": torch.arange(4.0)}


def of_default(_: Any, known: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006  # models have that
    """Keep the table in a default."""
    return known.setdefault("table", torch.arange(4.0))


def of_global(_: Any) -> torch.Tensor:
    """Keep the table under a global name."""
    global GLOBAL_TABLE
    if GLOBAL_TABLE is None:
        GLOBAL_TABLE = torch.arange(4.0)
    return GLOBAL_TABLE


def of_list(_: Any) -> torch.Tensor:
    """Keep the table in a global list."""
    if not TABLE_LIST:
        TABLE_LIST.append(torch.arange(4.0))
    return TABLE_LIST[0]


def of_object(_: Any) -> torch.Tensor:
    """Keep the table in an object."""
    if PLAIN.table is None:
        PLAIN.table = torch.arange(4.0)
    return PLAIN.table


def of_class(model: Cached) -> torch.Tensor:
    """Keep tables in the class."""
    if Cached.table is None:
        Cached.table = torch.arange(4.0)
    return Cached.table + model.tables.setdefault(1, torch.arange(4.0))


def closure() -> Callable[[Any], torch.Tensor]:
    """Return a function that keeps tables in its closure."""
    known: dict[str, torch.Tensor] = {}
    table: torch.Tensor | None = None

    def get(_: Any) -> torch.Tensor:
        nonlocal table
        if table is None:
            table = torch.arange(4.0)
        return table + known.setdefault("table", torch.arange(4.0))

    return get


class Tables:
    """A class beside the model that has tables and caches."""

    kept: dict[str, torch.Tensor] = {}  # noqa: RUF012  # shared by design
    only: Tables | None = None

    def __init__(self) -> None:
        self.table = torch.arange(4.0)

    @staticmethod
    @functools.lru_cache
    def computed() -> torch.Tensor:
        """Return the table."""
        return torch.arange(4.0)

    @classmethod
    def single(cls) -> Tables:
        """Return the only object."""
        if cls.only is None:
            cls.only = cls()
        return cls.only


def of_function(_: Any) -> torch.Tensor:
    """Keep the table as an attribute of the function."""
    if not hasattr(of_function, "table"):
        of_function.table = torch.arange(4.0)  # type: ignore[attr-defined]  # a function can have any
    table: torch.Tensor = of_function.table  # type: ignore[attr-defined]  # it has it now
    return table


ORDERED: OrderedDict[int, torch.Tensor] = OrderedDict()
MADE: defaultdict[int, torch.Tensor] = defaultdict(lambda: torch.arange(4.0))

PLACES: dict[str, Callable[[Any], torch.Tensor]] = {
    "global name": of_global,
    "global dict": lambda _: TABLES.setdefault("table", torch.arange(4.0)),
    "global list": of_list,
    "object": of_object,
    "class": of_class,
    "closure": closure(),
    "default": of_default,
    "cache": lambda _: unlimited(),
    "limited cache": lambda _: nested()[1]["table"],
    "cached method": lambda model: model.computed(),
    "another class": lambda _: Tables.kept.setdefault("table", torch.arange(4.0)),
    "cached static method of another class": lambda _: Tables.computed(),
    "only object of another class": lambda _: Tables.single().table,
    "function": of_function,
    "ordered dict": lambda _: ORDERED.setdefault(1, torch.arange(4.0)),
    "default dict": lambda _: MADE[1],
}


@pytest.mark.parametrize("place", PLACES)
def test_eager_answers_with_real_tensors_after_a_compile(
    compiled: Callable[..., trtcache.CompiledModule], place: str
) -> None:
    """The code's own cache is as it was, and is filled by eager again."""
    model = Cached(PLACES[place]).eval()
    module = compiled(model, (X,))
    answer = model(X)
    assert type(answer) is torch.Tensor
    torch.testing.assert_close(module(X), answer)
    assert TABLES["kept"] == 1


def test_real_tensors_in_a_cache_stay(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A cache that was filled before the compile is not cleared."""
    unlimited.cache_clear()
    model = Cached(PLACES["cache"]).eval()
    table = unlimited()
    compiled(model, (X,))
    assert unlimited() is table

"""Code that could go through a set, whose order is another in each process, is told from code that only asks it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.direct.attributes import Describer
from trtcache.direct.orders import goes_through, names_of_sets
from trtcache.direct.outside import asks, is_asking

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

FLAGS = {"kinds": {"a", "b"}}

THROUGH: dict[str, Callable[[Any], Any]] = {
    "a loop": lambda self: [one for one in self.kinds],  # noqa: C416  # a loop is what this is about
    "a list": lambda self: list(self.kinds),
    "handed on": lambda self: print(self.kinds),  # noqa: T201
    "returned": lambda self: self.kinds,
    "a constant": lambda _: [one for one in {"a", "b"}],  # noqa: C416
    "made of a list": lambda self: tuple(set(self.listed)),
    "a union": lambda self: self.kinds | {"c"},
    "unpacked": lambda _: [*{"a", "b"}],
    "popped": lambda self: self.kinds.pop(),
    "by a name": lambda self: list(getattr(self, "kinds")),  # noqa: B009
    "in a dictionary": lambda _: [list(one) for one in FLAGS.values()],
    "keys": lambda self: list(self.table.keys() & self.other.keys()),
    "a comprehension": lambda self: list({one for one in self.listed}),  # noqa: C416
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "in": lambda self: "a" in self.kinds,
    "in a constant": lambda self: self.name in {"a", "b"},
    "length": lambda self: len(self.kinds) + len(set(self.listed)),
    "sorted": lambda self: sorted(set(self.listed)),
    "in a dictionary": lambda self: self.name in FLAGS["kinds"],
    "a subset": lambda self: self.kinds.issubset(self.listed),
    "a comprehension": lambda self: self.name in {one for one in self.listed},  # noqa: C416
    "other keys": lambda self: [*self.table.keys()],
}


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Names that lead to sets of texts, as descriptions of a model and its globals tell them."""
    model = SimpleNamespace(kinds={"a", "b"}, one={"a"}, numbers={2, 1}, listed=["a"])
    found = names_of_sets({"model": Describer().of([model]), "modules": {"own": {"FLAGS": Describer().of(FLAGS)}}})
    return set(found)


def test_names_of_sets_are_those_of_texts(names: set[str]) -> None:
    """One text and numbers have an order; what a set is in has a star."""
    assert names == {"kinds", "*FLAGS"}


@pytest.mark.parametrize("name", THROUGH)
def test_going_through_a_set_is_seen(name: str, names: set[str]) -> None:
    """What hands a set on could go through it too."""
    function: FunctionType = THROUGH[name]  # type: ignore[assignment]  # a lambda is one
    assert goes_through(function.__code__, names)


@pytest.mark.parametrize("name", ASKED)
def test_asking_a_set_has_no_order(name: str, names: set[str]) -> None:
    """Most sets are there to be asked, and cost no hit."""
    function: FunctionType = ASKED[name]  # type: ignore[assignment]  # a lambda is one
    assert not goes_through(function.__code__, names)


def test_numbers_keep_the_order_in_which_they_were_put_in() -> None:
    """Two equal sets of numbers can be gone through in two orders."""
    assert Describer().of({8, 0}) != Describer().of({0, 8})
    assert Describer().of({"a", "b"}) == Describer().of({"b", "a"})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (time.time, True),
        (hash, True),
        (open, True),
        (len, False),
        ([].append, False),
        ("".join, False),
        ((1).__hash__, True),
    ],
    ids=["clock", "hash", "open", "len", "append", "join", "hash of a number"],
)
def test_what_a_function_in_c_asks(function: Callable[..., Any], expected: bool) -> None:
    """What is not known to answer by its arguments alone is taken to ask."""
    assert asks(function) is expected
    assert not asks(hash, by_model=False)


def test_modules_of_the_library_that_ask() -> None:
    """Those that remember something, and all that are not known."""
    asking = {("platform", "node"), ("threading", "current_thread"), ("inspect", "getsource"), ("linecache", "getline")}
    assert all(is_asking(*one) for one in asking)
    assert not is_asking("inspect", "signature")
    assert not is_asking("importlib._bootstrap", "_find_and_load")

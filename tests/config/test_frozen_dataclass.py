"""Frozen dataclasses behave like those of Python's library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from trtcache.config.frozen import frozen_dataclass


def _of_both(eq: bool = True, kw_only: bool = False) -> Any:
    ours = frozen_dataclass(eq=eq, kw_only=kw_only)
    theirs = dataclasses.dataclass(frozen=True, slots=True, eq=eq, kw_only=kw_only)
    return pytest.mark.parametrize("dataclass", [ours, theirs], ids=["ours", "Python's"])


@frozen_dataclass
class Point:
    """A point that is pickled."""

    x: int
    y: list[int] = field(default_factory=list)


@_of_both()
def test_objects_are_equal_by_their_fields(dataclass: Any) -> None:
    """Fields with ``compare=False`` do not count, and other classes are never equal."""

    class A:
        x: int
        y: int = field(default=0, compare=False)
        z: ClassVar[int] = 3

    class B(A):
        pass

    first, second = dataclass(A), dataclass(B)
    assert first(1, 2) == first(1, 3)
    assert first(1) != first(2)
    assert first(1) != second(1)
    assert first(1) != (1, 0)
    assert hash(first(1, 2)) == hash(first(1, 3))
    assert len({first(1), first(1), first(2)}) == 2


@_of_both()
def test_objects_do_not_change(dataclass: Any) -> None:
    """Fields, new names and methods cannot be assigned or deleted."""

    class A:
        x: int = 1
        y: int = field(init=False, default=4)

        def method(self) -> int:
            return self.x

    made = dataclass(A)()
    for name in ("x", "y", "method", "other"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(made, name, 2)
    with pytest.raises((AttributeError, TypeError)):
        del made.x
    assert (made.x, made.y, made.method()) == (1, 4, 1)


@_of_both()
def test_objects_are_shown_with_their_fields(dataclass: Any) -> None:
    """Also those that contain themselves; fields with ``repr=False`` are left out."""

    class A:
        x: int
        y: list[Any]
        z: int = field(default=0, repr=False)

    made = dataclass(A)(1, [])
    made.y.append(made)
    name = "test_objects_are_shown_with_their_fields.<locals>.A"
    assert repr(made) == f"{name}(x=1, y=[...])"


@_of_both(eq=False)
def test_objects_without_eq_are_equal_to_themselves_only(dataclass: Any) -> None:
    """Their hash is that of the object."""

    class A:
        x: int

    kind = dataclass(A)
    assert kind(1) != kind(1)
    assert len({kind(1), kind(1)}) == 2


@_of_both(kw_only=True)
def test_methods_of_the_class_stay(dataclass: Any) -> None:
    """Its own ``__eq__``, ``__hash__``, ``__repr__`` and ``__post_init__`` are not replaced."""

    class A:
        x: int
        y: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "y", self.x + 1)

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "A"

    made = dataclass(A)(x=1)
    assert (made == 3, hash(made), repr(made), made.y) == (True, 7, "A", 2)
    with pytest.raises(TypeError):
        dataclass(A)(1)


def test_objects_are_copied_pickled_and_replaced() -> None:
    """With functions of Python's library."""
    made = Point(1, [2])
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == copy.copy(made) == made  # noqa: S301
    assert replace(made, x=3) == Point(3, [2])
    assert asdict(made) == {"x": 1, "y": [2]}
    assert [one.name for one in fields(Point)] == ["x", "y"]
    assert not hasattr(made, "__dict__")
    match made:
        case Point(x, y):
            assert (x, y) == (1, [2])


def test_an_empty_class_is_equal_to_itself() -> None:
    """There are no fields to compare."""

    @frozen_dataclass
    class Empty:
        pass

    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


@pytest.mark.parametrize("base", [frozen_dataclass, dataclasses.dataclass(frozen=True, slots=True)])
@pytest.mark.parametrize("derived", [frozen_dataclass, dataclasses.dataclass(frozen=True, slots=True)])
def test_classes_are_derived(base: Any, derived: Any) -> None:
    """By either decorator from either: fields are added, and stay frozen; what may change cannot be derived."""

    class A:
        x: int
        y: int = 2

    first = base(A)

    class B(first):  # type: ignore[misc, valid-type]
        z: int = 3

    second = derived(B)
    made = second(1)
    assert (made.x, made.y, made.z) == (1, 2, 3)
    assert made == second(1)
    assert made != second(1, z=4)
    assert replace(made, x=5) == second(5)
    with pytest.raises(AttributeError):
        made.z = 4
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("C", (first,), {"__annotations__": {"w": int}}))

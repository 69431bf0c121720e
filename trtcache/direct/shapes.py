"""What the objects of a class hold: whether Python alone can tell, and where it is."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass
from types import MemberDescriptorType, WrapperDescriptorType

_BASES = frozenset({dict, list, tuple, set, frozenset, str, int, float, bytes, OrderedDict})
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or by a newer C extension


@dataclass(frozen=True, slots=True)
class Shape:
    """What an object holds beside its ``__dict__``: a built-in container or value, and slots."""

    base: type | None
    slots: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def shape_of(cls: type) -> Shape | None:
    """Return the shape of a class's objects; None where some of it is in C and cannot be seen."""
    base: type | None = None
    slots: list[str] = []
    for one in cls.__mro__[:-1]:
        if one in _BASES:
            base = base or one
        elif one.__flags__ & _HEAP and not _is_c(one):
            slots += [name for name, value in vars(one).items() if isinstance(value, MemberDescriptorType)]
        else:
            return None
    return Shape(base, tuple(slots))


def _is_c(cls: type) -> bool:
    return any(isinstance(value, WrapperDescriptorType) and value.__objclass__ is cls for value in vars(cls).values())

"""A difference of two programs or keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_INDEX = re.compile(r"(\[[^\]]*\])+$")


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """One difference: ``inputs[0].shape[2]: 224 -> 256``.

    Attributes:
        where: a path in the key document, or a node of the graph and what differs about it.
        before: the first value; None if there is none.
        after: the second value; None if there is none.
        alike: the number of further places with the same change.
    """

    where: str
    before: str | None
    after: str | None
    alike: int = 0

    @property
    def field(self) -> str:
        """The last word of ``where``, without indices: the kind of value that changed."""
        return re.split(r"[ .]", _INDEX.sub("", self.where))[-1]

    def __str__(self) -> str:
        more = f" (and {self.alike} alike)" if self.alike else ""
        if self.before is None:
            return f"{self.where} added: {_short(self.after)}{more}"
        if self.after is None:
            return f"{self.where} removed: {_short(self.before)}{more}"
        return f"{self.where}: {_short(self.before)} -> {_short(self.after)}{more}"

    def as_json(self) -> dict[str, str | int | None]:
        """Return the fields, and the sentence as ``text``."""
        return {
            "where": self.where,
            "before": self.before,
            "after": self.after,
            "alike": self.alike,
            "text": str(self),
        }


def _short(text: str | None, most: int = 160) -> str:
    text = text or "nothing"
    return text if len(text) <= most else f"{text[:most]}..."


def merge_repeated(differences: Iterable[KeyDifference]) -> list[KeyDifference]:
    """Merge equal changes in several places into one difference, in order."""
    first: dict[object, KeyDifference] = {}
    for difference in differences:
        only_one_has_it = difference.before is None or difference.after is None
        key = (difference.where if only_one_has_it else difference.field, difference.before, difference.after)
        earlier = first.get(key)
        first[key] = difference if earlier is None else replace(earlier, alike=earlier.alike + 1)
    return list(first.values())


def summary(differences: list[KeyDifference]) -> str:
    """Return the first difference and the number of others, as one line."""
    if not differences:
        return "nothing that can be named"
    more = len(differences) - 1
    return f"{differences[0]}" + (f" (and {more} more)" if more else "")

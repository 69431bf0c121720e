"""Readable names of a lowered graph's nodes, used everywhere: ``softmax_1``, ``in0``, ``w3``."""

from __future__ import annotations

from collections import Counter


class NodeNames:
    """Assigns names to nodes in canonical order."""

    def __init__(self) -> None:
        """Start without names."""
        self._seen: Counter[str] = Counter()

    def call(self, operator: str) -> str:
        """Return the name of the next call of an operator: ``softmax``, ``softmax_1``."""
        base = short_name(operator)
        number = self._count(base)
        return f"{base}_{number}" if number else base

    def number(self, letter: str) -> str:
        """Return the name of the next weight or constant: ``w0``, ``w1``."""
        return f"{letter}{self._count(letter)}"

    def _count(self, base: str) -> int:
        number = self._seen[base]
        self._seen[base] += 1
        return number


def short_name(operator: str) -> str:
    """Return the base name of an operator's calls: ``softmax`` for ``aten._softmax.default``.

    A custom operator may be given by its schema.
    """
    path = operator.partition("(")[0].replace("::", ".")
    parts = [part for part in path.split(".") if part]
    return (parts[1] if len(parts) > 1 else path).strip("_") or operator

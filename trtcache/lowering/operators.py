"""Operators by name: readable names of their calls, and which ones have a version in the key."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch


LIVE_ENGINE = "trtcache::execute_engine"
"""The operator that runs an engine of this process."""

TORCHS_OWN = frozenset(
    (
        *("aten", "prim", "prims", "quantized", "quantized_decomposed", "mkldnn", "mkl", "rngprims", "inductor"),
        "_c10d_functional",
    )
)
"""Namespaces of operators that torch's version identifies."""


def is_foreign(target: torch._ops.OpOverload, declared: Collection[str]) -> bool:
    """Return whether neither torch's version nor a ``declared`` version identifies an operator's implementation."""
    return not (target.namespace in TORCHS_OWN or {target.namespace, target._schema.name} & set(declared))


def why_unknown(target: torch._ops.OpOverload, declared: Collection[str]) -> str | None:
    """Return why an operator's implementation is unidentified, or None; engine handles belong to one process."""
    name = target._schema.name
    if name == LIVE_ENGINE:
        return "it is an engine of this process; compile the model without"
    if not is_foreign(target, declared):
        return None
    return (
        f"custom operator {name} can change without its name doing so; "
        f"declare its version: settings={{'operator_versions': {{{name!r}: '1'}}}}"
    )


def operator_name(target: object) -> str:
    """Return ``aten.add.Tensor`` for an operator and ``_operator.mul`` for a function."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


class NodeNames:
    """Assigns names to nodes in canonical order: ``softmax_1``, ``in0``, ``w3``."""

    def __init__(self) -> None:
        """Start without names."""
        self._seen: Counter[str] = Counter()

    def call(self, operator: str) -> str:
        """Return the name of the next call of an operator: ``softmax``, ``softmax_1``.

        It is the operator's base name, ``softmax`` for ``aten._softmax.default``. A custom operator may be given by its
        schema.
        """
        path = operator.partition("(")[0].replace("::", ".")
        parts = [part for part in path.split(".") if part]
        base = (parts[1] if len(parts) > 1 else path).strip("_") or operator
        self._seen[base] += 1
        return f"{base}_{self._seen[base] - 1}" if self._seen[base] > 1 else base

    def number(self, letter: str) -> str:
        """Return the name of the next weight or constant: ``w0``, ``w1``."""
        self._seen[letter] += 1
        return f"{letter}{self._seen[letter] - 1}"

"""Custom operators: which ones have a version in the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

_LIVE_ENGINE = "trtcache::execute_engine"
TORCHS_OWN = frozenset(
    (
        "aten",
        "prim",
        "prims",
        "quantized",
        "quantized_decomposed",
        "mkldnn",
        "mkl",
        "rngprims",
        "inductor",
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
    if name == _LIVE_ENGINE:
        return "it is an engine of this process; compile the model without"
    if not is_foreign(target, declared):
        return None
    return (
        f"custom operator {name} can change without its name doing so; "
        f"declare its version: settings={{'operator_versions': {{{name!r}: '1'}}}}"
    )

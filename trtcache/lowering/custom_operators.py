"""Custom operators: which ones have a version that the key can name."""

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
"""Namespaces of operators that the version of torch decides."""


def is_foreign(target: torch._ops.OpOverload, declared: Collection[str]) -> bool:
    """Say whether what an operator computes is told neither by torch's version nor by one that is ``declared``."""
    return not (target.namespace in TORCHS_OWN or {target.namespace, target._schema.name} & set(declared))


def why_unknown(target: torch._ops.OpOverload, declared: Collection[str]) -> str | None:
    """Return why nothing tells what an operator computes, or None: an engine's handle is of one process for ever."""
    name = target._schema.name
    if name == _LIVE_ENGINE:
        return "it is an engine of this process; compile the model without"
    if not is_foreign(target, declared):
        return None
    return (
        f"custom operator {name} can change without its name doing so; "
        f"declare its version: settings={{'operator_versions': {{{name!r}: '1'}}}}"
    )

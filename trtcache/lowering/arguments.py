"""The arguments of a node in the order of its operator's schema, with defaults filled in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import fx


def arguments(node: fx.Node) -> list[Any]:
    """Return every argument of a node in order, defaults included.

    ``add(a, b)``, ``add(a, other=b)`` and ``add(a, b, alpha=1)`` give the same. For a function without a schema, return
    its positional arguments, then its keyword arguments sorted by name.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        given, kwargs = list(node.args), node.kwargs
        for name, default in _parameters(target)[len(given) :]:
            given.append(kwargs.get(name, default))
        return given
    return [*node.args, *(one for _, one in sorted(node.kwargs.items()))]


def argument_names(operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """Return the argument names of an operator's schema."""
    return tuple(name for name, _ in _parameters(operator))


@functools.cache
def _parameters(operator: torch._ops.OpOverload) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (argument.name, argument.default_value if argument.has_default_value() else None)
        for argument in operator._schema.arguments
    )

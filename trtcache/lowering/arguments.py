"""The arguments of a node as its operator sees them: in the order of the schema, defaults filled in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import fx


def arguments(node: fx.Node) -> list[Any]:
    """Return every argument of a node in order; what the caller left out has its default.

    ``add(a, b)``, ``add(a, other=b)`` and ``add(a, b, alpha=1)`` are alike. Functions without a schema give their
    positional arguments, then their keyword arguments in the order of their names.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        given, kwargs = list(node.args), node.kwargs
        for name, default in _parameters(target)[len(given) :]:
            given.append(kwargs.get(name, default))
        return given
    return [*node.args, *(one for _, one in sorted(node.kwargs.items()))]


def argument_names(operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """Return what an operator's schema calls its arguments."""
    return tuple(name for name, _ in _parameters(operator))


@functools.cache
def _parameters(operator: torch._ops.OpOverload) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (argument.name, argument.default_value if argument.has_default_value() else None)
        for argument in operator._schema.arguments
    )

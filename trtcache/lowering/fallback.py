"""Modules that stay in torch: their operators are marked before the passes run, and no pass touches them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from torch import fx

_OPERATORS = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
_CALL_NUMBER = re.compile(r"@\d+$")  # torch.export tells the second call of a module from the first: "lin@1"


@dataclass(frozen=True, slots=True)
class TorchExecuted:
    """An operator that is to be executed by torch, as passes see it: it equals no operator that they know."""

    operator: torch._ops.OperatorBase

    @property
    def __name__(self) -> str:
        return f"torch_executed_{self.operator}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what the operator does."""
        return self.operator(*args, **kwargs)


def mark_torch_executed(graph: fx.Graph, modules: Collection[str]) -> int:
    """Mark the operators of some modules, and of the modules in them, and hide them from passes; return how many.

    Sizes, and operators that are there for a side effect, are not hidden.

    Args:
        graph: a decomposed graph.
        modules: paths of modules (``encoder.layer.0``) and names of their classes
            (``torch.nn.modules.activation.GELU``).

    Raises:
        SettingsError: no operator came from a module of that name.
    """
    if not modules:
        return 0
    wanted, known, count = set(modules), set[str](), 0
    for node in graph.nodes:
        names = set(_modules(node))
        known |= names
        if names & wanted and isinstance(node.target, _OPERATORS) and _can_hide(node):
            node.meta["torch_executed"] = True
            node.target = TorchExecuted(node.target)
            count += 1
    for name in sorted(wanted - known):
        raise SettingsError(f"settings.torch_executed_modules {name!r}", did_you_mean(name, sorted(known)))
    return count


def unhide(graph: fx.Graph) -> None:
    """Give marked operators back their own targets; the marks stay, in ``meta["torch_executed"]``."""
    for node in graph.nodes:
        if isinstance(node.target, TorchExecuted):
            node.target = node.target.operator


def _modules(node: fx.Node) -> Iterator[str]:
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        if path:
            yield _CALL_NUMBER.sub("", path)
        yield kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _can_hide(node: fx.Node) -> bool:
    return not node.is_impure() and not isinstance(node.meta.get("val"), torch.SymInt)

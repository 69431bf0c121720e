"""The contract of lowering passes, and the passes of other distributions.

A pass takes a lowered graph and returns one that computes the same. The graph is a flat ``torch.fx`` graph of ATen
operators without mutation, as exported by ``torch.export``, in which

* a ``placeholder`` with ``meta["input"] = n`` is leaf number n of the call's flattened arguments;
* a ``placeholder`` with ``meta["weight"] = name`` is a weight, with a fake value: passes cannot read weights;
* a ``get_attr`` is a constant tensor, stored on the graph module, and its value may be read;
* an operator's ``meta["contiguous"]`` has the places of the arguments that are contiguous in the exported program;
* the ``output`` lists every result, and its ``meta["roles"]`` has the role of each (see ``interface.Result``).

Every node's ``meta["val"]`` is its fake result; a pass that adds a node sets it. The Python code of the graph module is
not updated: call ``recompile`` to run it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar, Protocol

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import file_bytes
from trtcache.errors import PassError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from torch import fx


@frozen_dataclass
class PassResult:
    """A lowered graph, and whether it was modified."""

    graph_module: fx.GraphModule
    modified: bool


class Pass(Protocol):
    """A rewrite of a lowered graph; a frozen dataclass whose fields are its options.

    A pass MUST keep results and symbolic shapes, MUST be idempotent, MUST leave the graph untouched when it reports
    ``modified=False``, and MUST NOT depend on the names or the order of nodes. ``version`` MUST change whenever the
    graphs that it produces change: it is part of every key.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    def __call__(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite the graph, possibly in place."""
        ...

    def requires(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # by default it handles every graph
        """Return why the pass cannot handle this graph, or None."""
        return None

    def ensures(self, graph_module: fx.GraphModule) -> str | None:  # noqa: ARG002  # by default there is no postcondition
        """Return how the pass's result violates its postcondition, or None."""
        return None


def spec(lowering_pass: Pass) -> str:
    """Return a pass's spec string in the key: ``fold_constants@1{max_bytes=65536}``."""
    options = ",".join(f"{field.name}={getattr(lowering_pass, field.name)!r}" for field in fields(lowering_pass))  # type: ignore[arg-type]
    return f"{lowering_pass.name}@{lowering_pass.version}" + (f"{{{options}}}" if options else "")


_GROUP = "trtcache.passes"


@cache
def installed_passes() -> tuple[EntryPoint, ...]:
    """Return the entry points of passes in this environment, looked up once.

    There are almost never any. Parsing the entry points of every distribution takes 3 ms of a hit's 60, so the files
    are first searched for the group's name.
    """
    if not any(map(_mentions, sys.path)):
        return ()
    return tuple(entry_points(group=_GROUP))


def _mentions(folder: str) -> bool:
    """Return whether a distribution in a folder of ``sys.path`` may have an entry point of the group."""
    try:
        names = os.listdir(folder or ".")  # noqa: PTH208  # only names are needed
    except NotADirectoryError:
        return True  # an archive: importlib can read it
    except OSError:
        return False
    for name in names:
        if name.endswith((".dist-info", ".egg-info", ".egg")):
            try:
                if _GROUP.encode() in file_bytes(f"{folder or '.'}/{name}/entry_points.txt"):
                    return True
            except OSError:  # a directory can be opened, but not read
                if name.endswith(".egg"):
                    return True
    return False


def load_third_party(points: Collection[EntryPoint], ours: Collection[str]) -> tuple[Pass, ...]:
    """Return the passes of entry points, sorted by name; ``ours`` are the names of built-in passes.

    Raises:
        PassError: two distributions provide a pass of one name, or one has the name of a built-in pass (the message
            names both owners); or a pass cannot be imported or instantiated, or has another name than its entry point.
    """
    owners = dict.fromkeys(ours, "trtcache")
    for point in points:
        owner = point.dist.name if point.dist else point.value
        if point.name in owners:
            raise PassError(point.name, (), f"offered by both {owners[point.name]} and {owner}; remove one")
        owners[point.name] = owner
    passes: list[Pass] = []
    for point in sorted(points, key=lambda point: point.name):
        try:
            instance: Pass = getattr(import_module(point.module), point.attr)()
        except Exception as error:
            why = f"{point.value} of {owners[point.name]} cannot be loaded: {error}"
            raise PassError(point.name, (), why) from error
        if instance.name != point.name:
            raise PassError(point.name, (), f"{point.value} of {owners[point.name]} has the name {instance.name!r}")
        passes.append(instance)
    return tuple(passes)

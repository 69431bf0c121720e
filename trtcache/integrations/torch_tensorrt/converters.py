"""Converters of a partition's operators that torch_tensorrt's version does not identify."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import Digest
from trtcache.errors import CanonicalizationError
from trtcache.lowering.operators import is_foreign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import fx

    from trtcache.digests import Json

_PACKAGE = "torch_tensorrt"
_PLUGINS = f"{_PACKAGE}.dynamo.conversion.plugins"
"""Converters of this package wrap the user's own kernels, whose code they do not contain."""


def converters_of(module: fx.GraphModule, registry: Any) -> dict[fx.Node, Any]:
    """Return the converter that torch_tensorrt would choose for each call, unless its version identifies it.

    The registry searches all its converters to choose one, 0.1 ms per call. Calls of torch's operators that only have
    torch_tensorrt's own converters are therefore left out: whichever is chosen, the version identifies it.

    Args:
        module: the partition.
        registry: torch_tensorrt's ``DYNAMO_CONVERTERS``, set to the compilation's settings.
    """
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    covered = {target for target in {node.target for node in calls} if _is_covered(target, registry)}
    found = ((node, registry.get(node)) for node in calls if node.target not in covered)
    return {node: packet[0] for node, packet in found if packet}


def _is_covered(target: Any, registry: Any) -> bool:
    """Return whether torch_tensorrt's version identifies every possible converter of an operator."""
    if isinstance(target, torch._ops.OpOverload) and is_foreign(target, ()):
        return False
    candidates = _candidates(target, registry)
    return candidates is not None and all(_within(one, _PACKAGE) for one in candidates)


def _candidates(target: Any, registry: Any) -> list[Any] | None:
    """Return all converters of an operator; None if the registry has an unknown form."""
    tables = getattr(registry, "registries", None)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return None
    found: list[Any] = []
    for entry in (table[target] for table in tables if target in table):
        several = isinstance(entry, (list, tuple))
        found += [getattr(one, "converter_implementation", None) for one in entry] if several else [entry]
    return None if None in found else found


def converters_document(converters: Mapping[fx.Node, Any]) -> dict[str, Json]:
    """Return the foreign converters: operator -> name of the converter, and digest of its file.

    Raises:
        CanonicalizationError: a converter has no source file.
    """
    return {
        str(node.target): [f"{converter.__module__}.{converter.__qualname__}", str(_source(converter))]
        for node, converter in converters.items()
        if not _within(converter, _PACKAGE)
    }


def declared_operators(converters: Mapping[fx.Node, Any]) -> set[str]:
    """Return the custom operators whose converters are in the key, through torch_tensorrt's version or their own file.

    A plugin's converter does not show the kernel it wraps, so its operator is not among them.
    """
    named = {
        node.target._schema.name
        for node, converter in converters.items()
        if isinstance(node.target, torch._ops.OpOverload) and not _within(converter, _PLUGINS)
    }
    return {_PACKAGE, *named}


def _within(converter: Any, package: str) -> bool:
    module = str(getattr(converter, "__module__", ""))
    return module == package or module.startswith(f"{package}.")


def _source(converter: Any) -> Digest:
    try:
        return Digest.of_file(inspect.getfile(inspect.unwrap(converter)))
    except (TypeError, OSError) as error:
        raise CanonicalizationError(f"converter {converter!r}", f"no source file: {error}") from error

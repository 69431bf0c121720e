"""The code that makes TensorRT layers of a partition's operators, where torch_tensorrt's version does not say it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from trtcache.errors import CanonicalizationError
from trtcache.values import Digest

if TYPE_CHECKING:
    from torch import fx

    from trtcache.values import Json

_PACKAGE = "torch_tensorrt"
_PLUGINS = f"{_PACKAGE}.dynamo.conversion.plugins"
"""Converters of this package stand for kernels of the user's own, which they do not show."""


def converters_document(module: fx.GraphModule, registry: Any) -> dict[str, Json]:
    """Return the converters of a partition that are not torch_tensorrt's own: operator -> name and digest of the file.

    Args:
        module: the partition.
        registry: torch_tensorrt's ``DYNAMO_CONVERTERS``, set to the compilation's settings.

    Raises:
        CanonicalizationError: a converter has no source file.
    """
    found: dict[str, Json] = {}
    for node in module.graph.nodes:
        converter = _converter(node, registry)
        if converter is not None and not _within(converter, _PACKAGE):
            found[str(node.target)] = [f"{converter.__module__}.{converter.__qualname__}", str(_source(converter))]
    return found


def declared_operators(module: fx.GraphModule, registry: Any) -> set[str]:
    """Return the custom operators whose converters the key has: torch_tensorrt's version says them, or their own file.

    What a plugin's converter stands for is not shown by it, so its operator is not among them.
    """
    declared = {_PACKAGE}
    for node in module.graph.nodes:
        converter = _converter(node, registry)
        if isinstance(node.target, torch._ops.OpOverload) and converter and not _within(converter, _PLUGINS):
            declared.add(node.target._schema.name)
    return declared


def _converter(node: fx.Node, registry: Any) -> Any:
    found = registry.get(node) if node.op == "call_function" else None
    return found[0] if found else None


def _within(converter: Any, package: str) -> bool:
    module = str(getattr(converter, "__module__", ""))
    return module == package or module.startswith(f"{package}.")


def _source(converter: Any) -> Digest:
    try:
        return Digest.of_file(inspect.getfile(inspect.unwrap(converter)))
    except (TypeError, OSError) as error:
        raise CanonicalizationError(f"converter {converter!r}", f"no source file: {error}") from error

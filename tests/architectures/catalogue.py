"""The list of architectures by name, and which of their sizes vary."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tests.architectures.architecture import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.architectures.architecture import Call

GROUPS = ("others", "diffusers", "torchvision", "timm", "transformers")
"""What one process imports: a library, or several that are rarely used."""

_NODES, _EDGES = 6, 9
_OTHER_SIZES = {BATCH: 3}
_OTHER_GRAPH_SIZES = {_NODES: 8, _EDGES: 11}


def names_of(group: str) -> list[str]:
    """Return the full names, ``library/architecture``, of a group."""
    return [name if group == "others" else f"{group}/{name}" for name in _architectures(group)]


def group_of(name: str) -> str:
    """Return the group of an architecture."""
    library = name.partition("/")[0]
    return library if library in GROUPS else "others"


def factory(name: str) -> Callable[[], Call]:
    """Return the function that makes an architecture and its inputs."""
    group = group_of(name)
    table = _architectures(group)
    return table[name if group == "others" else name.partition("/")[2]]


def _architectures(group: str) -> Mapping[str, Callable[[], Call]]:
    table: Mapping[str, Callable[[], Call]] = importlib.import_module(f"tests.architectures.from_{group}").ARCHITECTURES
    return table


def varying(name: str, tensor: torch.Tensor) -> dict[int, int]:
    """Return the dimensions of an input that vary, with another size: the batch, or a graph's nodes and edges."""
    if name.startswith("torch_geometric/"):
        sizes = enumerate(tensor.shape)
        return {dim: _OTHER_GRAPH_SIZES[size] for dim, size in sizes if size in _OTHER_GRAPH_SIZES}
    return {0: _OTHER_SIZES[BATCH]} if tensor.dim() and tensor.shape[0] == BATCH else {}


def resized(name: str, inputs: Any) -> Any:
    """Return example inputs with the other sizes."""

    def resize(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            for dim, size in varying(name, leaf).items():
                leaf = leaf.index_select(dim, torch.arange(size) % leaf.shape[dim])
        return leaf

    return pytree.tree_map(resize, inputs)

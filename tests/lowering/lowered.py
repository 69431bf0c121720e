"""Runs lowered programs with torch itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils import _pytree as pytree

from trtcache.backends.program_forms import to_module_with_weights
from trtcache.keys.graph_digest import graph_records
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.digests import Digest
    from trtcache.lowering import LoweredProgram


def outputs(
    program: LoweredProgram, *args: object, state: Mapping[str, torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Return what a lowered program answers with its model's weights or with others."""
    graph_module, _ = to_module_with_weights(program)
    chosen = fit(
        program.interface.weights, state or program.state, known=frozenset(program.state), device=program.device
    )
    for name, weight in chosen.items():
        setattr(graph_module, name, weight)
    leaves = pytree.tree_leaves(args)
    return list(graph_module(*[leaves[one.leaf] for one in program.interface.inputs]))


def operators(program: LoweredProgram) -> list[str]:
    """Return the operators of a lowered program by name, in canonical order: ``["convolution", "relu"]``."""
    targets = [node.target for node in program.order if node.op == "call_function"]
    return [getattr(target, "overloadpacket", target).__name__ for target in targets]  # type: ignore[union-attr]  # never text


def digest(program: LoweredProgram) -> Digest:
    """Return the digest of a lowered program's graph."""
    return graph_records(program)[1]

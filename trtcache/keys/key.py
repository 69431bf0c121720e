"""The named parts of a compiled program's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.digests import encode, hash_bytes
from trtcache.lowering.module_arguments import module_class
from trtcache.weights.fingerprints import fingerprints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.utils import _pytree as pytree

    from trtcache.digests import CacheKey, Digest
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot


def key_parts(
    program: LoweredProgram,
    graph: Digest,
    *,
    settings: Settings,
    target: Target,
    toolchain: Mapping[str, object],
    ambient: Mapping[str, object],
) -> dict[str, object]:
    """Return the named parts of the key of a lowered program's artifact.

    Weights are in it as slots, inside the graph's digest: by number, dtype, shape, strides and device type. Names of
    parameters, paths, hosts, users and device indices are not.
    """
    interface = program.interface
    parts = {
        "graph": graph,
        "inputs": [one.document() for one in interface.inputs],
        "values": [[one.leaf, one.value] for one in interface.values],
        "structure": {"arguments": structure(program.in_spec), "output": structure(program.out_spec)},
        "layouts": [one.layout for one in interface.results],
        "sizes": list(interface.ranges),
        "pipeline": program.pipeline,
        "settings": settings.document(),
        "ambient": ambient,
        "target": target.document(),
        "toolchain": toolchain,
    }
    if interface.guards:  # a program without guards keeps the key of versions without guards
        parts["guards"] = list(interface.guards)
    return parts


def frozen_part(program: LoweredProgram, frozen: Sequence[Slot]) -> dict[str, object]:
    """Return the key part with the values of frozen weights; empty without any.

    Raises:
        CanonicalizationError: the elements of a weight cannot be read.
    """
    if not frozen:
        return {}
    found = fingerprints([program.state[slot.names[0]] for slot in frozen])
    return {"frozen": [[slot.index, digest] for slot, digest in zip(frozen, found, strict=True)]}


def part_digests(key: CacheKey) -> str:
    """Return the digest of each part of a key, shortened: two machines whose keys differ see at once which parts do."""
    parts = key.document["parts"]
    assert isinstance(parts, dict)  # noqa: S101  # by CacheKey.of
    return ", ".join(f"{name} {hash_bytes(encode(part)).hex()[:12]}" for name, part in parts.items())


def structure(spec: pytree.TreeSpec) -> Any:
    """Return the shape of a pytree as lists: ``None`` for a leaf, ``[type, names or None, children...]`` for a node."""
    if spec.is_leaf():
        return None
    children = spec.children() if callable(spec.children) else spec.children
    kind = f"{spec.type.__module__}.{spec.type.__qualname__}"
    context = (
        spec.context if module_class(spec) is None else spec.context[0]
    )  # a weak reference differs in each process
    return [kind, _context(context), *map(structure, children)]


def _context(context: Any) -> Any:
    if context is None or isinstance(context, (bool, int, str)):
        return context
    if isinstance(context, (list, tuple)):
        return [_context(one) for one in context]
    if isinstance(context, type):
        return f"{context.__module__}.{context.__qualname__}"
    return repr(context)

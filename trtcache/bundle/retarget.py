"""The engines of a compiled module for another target: its programs are made from what is stored, and built again."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.backends.members import ENGINE, GRAPH
from trtcache.compiler.compile import origin_of
from trtcache.compiler.lookup import entry_for
from trtcache.compiler.request import Request, keyed
from trtcache.compiler.stored_program import Outside, rebuilt
from trtcache.errors import ProgramFileError, SettingsError
from trtcache.lowering.capture import Role
from trtcache.runtime.provenance import load_members

if TYPE_CHECKING:
    import torch

    from trtcache.bundle.contents import Outgoing
    from trtcache.cache import Cache
    from trtcache.lowering import LoweredProgram
    from trtcache.runtime.provenance import Provenance
    from trtcache.store.entry import Entry


def retargeted(outgoing: Outgoing, target: str, cache: Cache, path: Path) -> Provenance:
    """Return the engines of a program for another target, from the cache or built.

    Raises:
        SettingsError: the target is unknown.
        ProgramFileError: what is stored of the program is not enough to build it again.
        BuildError: a build failed.
    """
    origin = outgoing.origins[0]
    device = outgoing.executable.device
    backend = registry.find(origin.backend, device.type)
    if origin.settings is None:
        raise ProgramFileError(str(path), "it was loaded from a file; export the module that trtcache.compile returned")
    resolved = backend.target(target, device)
    if resolved.document() == dict(origin.target):
        return origin
    requests: dict[int, Request] = {}
    for number, entry in origin.entries.items():
        program = _program(outgoing, number, entry, path)
        requests[number] = keyed(program, backend, origin.settings, resolved, time.perf_counter())
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        entries = {
            number: load_members(entry_for(request, cache, Path(folder) / str(number))[0])
            for number, request in requests.items()
        }
        first = next(iter(requests.values()), None)
        if first is None:
            raise SettingsError(f"target {target!r}", "the program has no engine")
        made = origin_of(first, outgoing.division, entries)
    return replace(made, parameters=origin.parameters, settings=origin.settings)


def _outside(outgoing: Outgoing, outputs: Any) -> Outside:
    """Return how a program is called that is one engine; ``outputs`` are those of its stored graph."""
    interface = outgoing.executable.interface
    results = iter(interface.results)
    roles = []
    for kind, target, _ in outputs:
        if kind == "weight":
            roles.append(Role("weight", f"s{target}"))
        else:
            one = next(results)
            roles.append(Role(one.kind, one.target, one.value, one.layout))
    values = {one.leaf: one.value for one in interface.values}
    return Outside(outgoing.call.in_spec, outgoing.call.out_spec, tuple(roles), values)


def _program(outgoing: Outgoing, number: int, entry: Entry, path: Path) -> LoweredProgram:
    """Return the lowered program of an engine, with the values that its weights have now."""
    if not outgoing.division.is_whole:
        return outgoing.division.engines[number].program
    if GRAPH not in entry.members:
        raise ProgramFileError(str(path), "its engine has no stored graph; compile the model for that target instead")
    parts: Any = entry.key.document["parts"]
    members = {name: bytes(entry.read(name)) for name in entry.members if name != ENGINE}
    graph = json.loads(members[GRAPH])
    try:
        program = rebuilt(
            members,
            name=outgoing.name,
            pipeline=[str(one) for one in parts["pipeline"]],
            hints=[None] * len(graph["sizes"]),
            device=outgoing.executable.device,
            outside=_outside(outgoing, graph["nodes"][-1][1]),
        )
    except ValueError as error:
        why = f"its stored graph cannot be built again ({error})"
        raise ProgramFileError(str(path), f"{why}; compile the model for that target instead") from error
    state: dict[str, torch.Tensor] = {f"s{index}": tensor for index, tensor in outgoing.weights.items()}
    return replace(program, state={**program.state, **state})

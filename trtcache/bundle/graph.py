"""The graph that a program's file has for ``torch.export.load``: made by ``torch.export`` itself from a carrier."""

from __future__ import annotations

import io
import itertools
import json
import logging
import random
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from trtcache.bundle.pytree import without_classes
from trtcache.bundle.traced_module import TOKEN, Carrier, signature_of
from trtcache.errors import ProgramFileError
from trtcache.lowering.expressions import affine, evaluate
from trtcache.lowering.tracing_lock import ALONE
from trtcache.runtime.guards import failed_guard
from trtcache.weights.slots import contiguous, weight_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.export import ExportedProgram

    from trtcache.bundle.contents import Outgoing
    from trtcache.bundle.payload import Parcel
    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface, TensorInput

log = logging.getLogger(__name__)

_OF_ALL_BYTES = ".data/serialization_id"  # a hash of torch's over all members, which others are beside now


def exported(
    outgoing: Outgoing, parcels: Mapping[int, Sequence[Parcel]], path: str
) -> tuple[ExportedProgram, list[int]]:
    """Return a program as torch's own exporter makes it, with an operator for each engine, and whose those are.

    Args:
        outgoing: the program.
        parcels: how the engines of each part travel, one for each target.
        path: where it is to be written, for messages.

    Raises:
        ProgramFileError: torch cannot trace what stays in torch; the message has its words.
    """
    sizes = {number: sum(one.constant_bytes for one in each) for number, each in parcels.items()}
    empty = {number: torch.empty(size, dtype=torch.uint8) for number, size in sizes.items() if size}
    try:
        carrier = Carrier(outgoing, empty)
        with ALONE, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _traced(carrier.module, outgoing)
            if _mutates(outgoing):
                program = program.run_decompositions({})
    except Exception as error:
        raise ProgramFileError(path, f"torch.export cannot trace the program: {_words(error)}") from error
    calls = engine_calls(program)
    if missing := sorted(set(parcels) - set(calls)):
        raise ProgramFileError(path, f"nothing uses what the engines of parts {missing} make")
    _label(program, outgoing, parcels)
    program._example_inputs = None  # made up, and torch would pickle them
    return program, calls


def torchs_members(program: ExportedProgram, path: str) -> dict[str, bytes]:
    """Return the members of the archive that torch writes of a program, without folder; weights and constants are not.

    torch compares names of weights only: small tensors stand for them.

    Raises:
        ProgramFileError: torch cannot write it.
    """
    stand_in = torch.zeros(1)
    state = program.state_dict
    program._state_dict = {
        name: torch.nn.Parameter(stand_in, requires_grad=False) if isinstance(one, torch.nn.Parameter) else stand_in
        for name, one in state.items()
    }
    constants = program.constants
    program._constants = dict.fromkeys(constants, stand_in)
    entry = program.module_call_graph[0].signature
    assert entry is not None  # noqa: S101  # torch.export makes one
    entry.in_spec, entry.out_spec = without_classes(entry.in_spec), without_classes(entry.out_spec)
    written = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(program, written)
    except Exception as error:
        raise ProgramFileError(path, f"torch.export.save cannot write the program: {_words(error)}") from error
    finally:
        program._state_dict, program._constants = state, constants
    with zipfile.ZipFile(written) as archive:
        names = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        return {name: archive.read(info) for name, info in names.items() if name != _OF_ALL_BYTES}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()[:600]


def _traced(carrier: torch.nn.Module, outgoing: Outgoing) -> ExportedProgram:
    interface = outgoing.executable.interface
    args, kwargs = _arguments(outgoing, _examples(interface, outgoing.executable.device))
    shapes = _shapes(outgoing)
    if shapes is None:
        return torch.export.export(carrier, args, kwargs, strict=False)
    try:
        return torch.export.export(carrier, args, kwargs, dynamic_shapes=shapes, strict=False)
    except (torch._dynamo.exc.UserError, RuntimeError, ValueError) as error:
        log.info("sizes of %s are told to torch as it finds them: %s", outgoing.name, error)
        automatic = pytree.tree_map(
            lambda one: Dim.AUTO if isinstance(one, Dim) else one, shapes, is_leaf=lambda one: isinstance(one, Dim)
        )
        return torch.export.export(carrier, args, kwargs, dynamic_shapes=automatic, strict=False)


def _arguments(outgoing: Outgoing, tensors: Mapping[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a call gives, with values where the program was compiled for values."""
    spec = outgoing.call.in_spec
    values = {one.leaf: one.value for one in outgoing.executable.interface.values}
    leaves = [tensors[leaf] if leaf in tensors else values.get(leaf) for leaf in range(spec.num_leaves)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return tuple(args), dict(kwargs)


def hints(interface: Interface) -> dict[int, int]:
    """Return a size for each symbol that an example can have: in its range, no two alike where that can be.

    Where guards rule these sizes out, others near them are tried.

    Raises:
        ValueError: none of 100,000 combinations of sizes satisfies the guards.
    """
    preferred = []
    for number, (least, most) in enumerate(interface.ranges):
        wanted = max(least or 0, 2) + number
        preferred.append(wanted if most is None or wanted <= most else most)
    for sizes in itertools.chain((preferred,), _other_sizes(interface.ranges, preferred)):
        found = dict(enumerate(sizes))
        if failed_guard(interface.conditions, found) is None:
            return found
    raise ValueError("no example sizes satisfy what the program was exported for")


def _other_sizes(ranges: Sequence[tuple[int | None, int | None]], preferred: Sequence[int]) -> Iterator[list[int]]:
    """Yield combinations of sizes in their ranges, small ones first, then far ones."""
    generator = random.Random(0)  # noqa: S311  # the same examples each time
    for attempt in range(100_000):
        reach = 8 if attempt < 50_000 else 512
        sizes = []
        for (least, most), wanted in zip(ranges, preferred, strict=True):
            low = min(max(least or 0, 2), wanted)
            sizes.append(generator.randint(low, wanted + reach if most is None else min(most, wanted + reach)))
        yield sizes


def _examples(interface: Interface, device: torch.device) -> dict[int, Any]:
    sizes = hints(interface)
    found = {one.leaf: _example(one, sizes, device) for one in interface.inputs}
    return {one.leaf: found[one.leaf].shape[0] if one.number else found[one.leaf] for one in interface.inputs}


def _example(one: TensorInput, sizes: Mapping[int, int], device: torch.device) -> torch.Tensor:
    place = device if one.device == device.type else torch.device(one.device)
    shape = tuple(evaluate(size, sizes) or 0 for size in one.shape)
    stride = tuple(evaluate(step, sizes) for step in one.stride)
    known = tuple(step for step in stride if step is not None)
    laid = known if len(known) == len(stride) else contiguous(shape)
    return torch.empty_strided(shape, laid, dtype=getattr(torch, one.dtype), device=place).zero_()


def _shapes(outgoing: Outgoing) -> Any:
    """Return which sizes vary, as torch.export takes it; None if none do."""
    interface = outgoing.executable.interface
    if not any(type(size) is not int for one in interface.inputs for size in one.shape):
        return None
    dims = [_dim(number, *bounds) for number, bounds in enumerate(interface.ranges)]
    said: dict[int, Any] = {
        one.leaf: {place: _size(size, dims) for place, size in enumerate(one.shape) if type(size) is not int}
        for one in interface.inputs
    }
    said |= {one.leaf: Dim.AUTO for one in interface.inputs if one.number}  # torch takes no named Dim for an int
    spec = outgoing.call.in_spec
    args, kwargs = pytree.tree_unflatten([said.get(leaf) for leaf in range(spec.num_leaves)], spec)
    positional, names = len(args), list(kwargs)
    parameters = list(_parameters(outgoing, positional))
    return dict(zip([*parameters, *names], [*args, *kwargs.values()], strict=True)) if parameters else None


def _parameters(outgoing: Outgoing, positional: int) -> list[str]:
    """Return the names of the arguments that are given by position."""
    return list(signature_of(outgoing).parameters)[:positional]


def _dim(number: int, least: int | None, most: int | None) -> Any:
    return Dim(f"s{number}", min=least, max=most)


def _size(written: Json, dims: Sequence[Any]) -> Any:
    """Return a size as torch.export takes it: ``a * s + b``, or whatever torch finds."""
    number, factor, more = affine(written) or (0, 0, 0)
    if factor <= 0:
        return Dim.AUTO
    scaled = dims[number] if factor == 1 else factor * dims[number]
    return scaled + more if more else scaled


def _mutates(outgoing: Outgoing) -> bool:
    interface = outgoing.executable.interface
    return any(slot.mutated for slot in interface.slots) or any(one.kind == "input" for one in interface.results)


def engine_calls(program: ExportedProgram) -> list[int]:
    """Return the parts whose engines a program calls, in the order of its graph, before they are labelled."""
    calls = [node for node in program.graph.nodes if node.target is torch.ops.trtcache.execute_engine.default]
    return [int(str(node.args[2]).removeprefix(TOKEN)) for node in calls]


def _label(program: ExportedProgram, outgoing: Outgoing, parcels: Mapping[int, Sequence[Parcel]]) -> None:
    """Put texts into the calls of engines: the engine, its key, its weight map."""
    operator = torch.ops.trtcache.execute_engine.default
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine, and lines of the carrier
        if node.target is not operator:
            continue
        inputs, weights, token, *_, input_spec, output_spec = node.args
        number = int(str(token).removeprefix(TOKEN))
        keys = json.dumps([origin.entries[number].key.document for origin in outgoing.origins], sort_keys=True)
        recipes = json.dumps(weight_map(_interface(outgoing, number).weights), sort_keys=True)
        engine = ",".join(one.text for one in parcels[number])
        node.args = (inputs, weights, engine, keys, recipes, input_spec, output_spec)


def _interface(outgoing: Outgoing, number: int) -> Interface:
    if outgoing.division.is_whole:
        return outgoing.executable.interface
    return outgoing.division.engines[number].program.interface

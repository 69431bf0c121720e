"""The graph in a program file for ``torch.export.load``: exported by ``torch.export`` from a traceable module."""

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
from trtcache.bundle.traced_module import TOKEN, TracedProgram, signature_of
from trtcache.errors import ProgramFileError
from trtcache.lowering import ALONE
from trtcache.lowering.interface import affine, evaluate
from trtcache.runtime.guards import failed_guard
from trtcache.weights.slots import contiguous, weight_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.export import ExportedProgram

    from trtcache.bundle.contents import ProgramContents
    from trtcache.bundle.engines import EnginePayload
    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface, TensorInput

log = logging.getLogger(__name__)

_OF_ALL_BYTES = ".data/serialization_id"  # torch's hash over all members, invalid with ours added


def export_graph(
    outgoing: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]], path: str
) -> tuple[ExportedProgram, list[int]]:
    """Return a program exported by torch, with an operator for each engine, and the engines' partitions.

    Args:
        outgoing: the program.
        payloads: the payloads of each partition's engines, one for each target.
        path: the file, for messages.

    Raises:
        ProgramFileError: torch cannot trace what stays in torch; the message includes torch's.
    """
    sizes = {number: sum(one.constant_bytes for one in each) for number, each in payloads.items()}
    empty = {number: torch.empty(size, dtype=torch.uint8) for number, size in sizes.items() if size}
    try:
        traced = TracedProgram(outgoing, empty)
        with ALONE, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _trace(traced.module, outgoing)
            if _mutates(outgoing):
                program = program.run_decompositions({})
    except Exception as error:
        raise ProgramFileError(path, f"torch.export cannot trace the program: {_describe_error(error)}") from error
    calls = engine_calls(program)
    if missing := sorted(set(payloads) - set(calls)):
        raise ProgramFileError(path, f"nothing uses what the engines of parts {missing} make")
    _label(program, outgoing, payloads)
    program._example_inputs = None  # generated, and torch would pickle them
    return program, calls


def torch_members(program: ExportedProgram, path: str) -> dict[str, bytes]:
    """Return the members that torch writes for a program, without their folder, weights and constants.

    torch only compares names of weights: small tensors replace them.

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
    assert entry is not None  # noqa: S101  # set by torch.export
    entry.in_spec, entry.out_spec = without_classes(entry.in_spec), without_classes(entry.out_spec)
    written = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(program, written)
    except Exception as error:
        raise ProgramFileError(path, f"torch.export.save cannot write the program: {_describe_error(error)}") from error
    finally:
        program._state_dict, program._constants = state, constants
    with zipfile.ZipFile(written) as archive:
        names = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        return {name: archive.read(info) for name, info in names.items() if name != _OF_ALL_BYTES}


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip()[:600]


def _trace(traced: torch.nn.Module, outgoing: ProgramContents) -> ExportedProgram:
    interface = outgoing.executable.interface
    args, kwargs = _arguments(outgoing, _examples(interface, outgoing.executable.device))
    shapes = _shapes(outgoing)
    if shapes is None:
        return torch.export.export(traced, args, kwargs, strict=False)
    try:
        return torch.export.export(traced, args, kwargs, dynamic_shapes=shapes, strict=False)
    except (torch._dynamo.exc.UserError, RuntimeError, ValueError) as error:
        log.info("torch infers the dynamic sizes of %s: %s", outgoing.name, error)
        automatic = pytree.tree_map(
            lambda one: Dim.AUTO if isinstance(one, Dim) else one, shapes, is_leaf=lambda one: isinstance(one, Dim)
        )
        return torch.export.export(traced, args, kwargs, dynamic_shapes=automatic, strict=False)


def _arguments(outgoing: ProgramContents, tensors: Mapping[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with the values that the program was compiled for."""
    spec = outgoing.call.in_spec
    values = {one.leaf: one.value for one in outgoing.executable.interface.values}
    leaves = [tensors[leaf] if leaf in tensors else values.get(leaf) for leaf in range(spec.num_leaves)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return tuple(args), dict(kwargs)


def hints(interface: Interface) -> dict[int, int]:
    """Return an example size for each symbol: in its range, all different if possible.

    If guards exclude these sizes, others near them are tried.

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
    raise ValueError("no example sizes satisfy the guards of the program")


def _other_sizes(ranges: Sequence[tuple[int | None, int | None]], preferred: Sequence[int]) -> Iterator[list[int]]:
    """Yield combinations of sizes in their ranges, small ones first."""
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


def _example(spec: TensorInput, sizes: Mapping[int, int], device: torch.device) -> torch.Tensor:
    place = device if spec.device == device.type else torch.device(spec.device)
    shape = tuple(evaluate(size, sizes) or 0 for size in spec.shape)
    stride = tuple(evaluate(step, sizes) for step in spec.stride)
    known = tuple(step for step in stride if step is not None)
    laid = known if len(known) == len(stride) else contiguous(shape)
    return torch.empty_strided(shape, laid, dtype=getattr(torch, spec.dtype), device=place).zero_()


def _shapes(outgoing: ProgramContents) -> Any:
    """Return the dynamic sizes in torch.export's format; None without any."""
    interface = outgoing.executable.interface
    if not any(type(size) is not int for one in interface.inputs for size in one.shape):
        return None
    dims = [_dim(number, *bounds) for number, bounds in enumerate(interface.ranges)]
    shapes_: dict[int, Any] = {
        one.leaf: {place: _size(size, dims) for place, size in enumerate(one.shape) if type(size) is not int}
        for one in interface.inputs
    }
    shapes_ |= {
        one.leaf: Dim.AUTO for one in interface.inputs if one.number
    }  # torch does not accept a named Dim for an int
    spec = outgoing.call.in_spec
    args, kwargs = pytree.tree_unflatten([shapes_.get(leaf) for leaf in range(spec.num_leaves)], spec)
    positional, names = len(args), list(kwargs)
    parameters = list(_parameters(outgoing, positional))
    return dict(zip([*parameters, *names], [*args, *kwargs.values()], strict=True)) if parameters else None


def _parameters(outgoing: ProgramContents, positional: int) -> list[str]:
    """Return the names of the positional arguments."""
    return list(signature_of(outgoing).parameters)[:positional]


def _dim(number: int, least: int | None, most: int | None) -> Any:
    return Dim(f"s{number}", min=least, max=most)


def _size(written: Json, dims: Sequence[Any]) -> Any:
    """Return a size in torch.export's format: ``a * s + b``, or automatic."""
    number, factor, more = affine(written) or (0, 0, 0)
    if factor <= 0:
        return Dim.AUTO
    scaled = dims[number] if factor == 1 else factor * dims[number]
    return scaled + more if more else scaled


def _mutates(outgoing: ProgramContents) -> bool:
    interface = outgoing.executable.interface
    return any(slot.mutated for slot in interface.slots) or any(one.kind == "input" for one in interface.results)


def engine_calls(program: ExportedProgram) -> list[int]:
    """Return the partitions whose engines a program calls, in graph order, before they are labelled."""
    calls = [node for node in program.graph.nodes if node.target is torch.ops.trtcache.execute_engine.default]
    return [int(str(node.args[2]).removeprefix(TOKEN)) for node in calls]


def _label(
    program: ExportedProgram, outgoing: ProgramContents, payloads: Mapping[int, Sequence[EnginePayload]]
) -> None:
    """Set the text arguments of engine calls: the engine, its key, its weight map."""
    operator = torch.ops.trtcache.execute_engine.default
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine, and lines of the traced module
        if node.target is not operator:
            continue
        inputs, weights, token, *_, input_spec, output_spec = node.args
        number = int(str(token).removeprefix(TOKEN))
        keys = json.dumps([origin.entries[number].key.document for origin in outgoing.origins], sort_keys=True)
        recipes = json.dumps(weight_map(_interface(outgoing, number).weights), sort_keys=True)
        engine = ",".join(one.text for one in payloads[number])
        node.args = (inputs, weights, engine, keys, recipes, input_spec, output_spec)


def _interface(outgoing: ProgramContents, number: int) -> Interface:
    if outgoing.division.is_whole:
        return outgoing.executable.interface
    return outgoing.division.engines[number].program.interface

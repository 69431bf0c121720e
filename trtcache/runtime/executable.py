"""Executable: what a compiled module needs besides the engine, and the provenance of its engines for export.

Besides the engine, a module needs the interface, constants, and the model's names for weights. It is made from a
lowered program, or from a stored entry's members together with the model's own names, which an artifact never
contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from trtcache.backends.protocol import CONSTANTS, INTERFACE, INTERFACE_FORMAT, WEIGHT_MAP
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Json, canonical
from trtcache.errors import IncompatibleEngineError, RefitError
from trtcache.lowering.interface import Content, Interface, Result, SmallSizes, TensorInput, TensorOutput, ValueInput
from trtcache.partition.division import PartitionedProgram
from trtcache.weights.recipes import evaluate, parse, sources
from trtcache.weights.slots import EngineWeight, EngineWeights, Slot, alike

if TYPE_CHECKING:
    import torch

    from trtcache.keys.key import KeyAlias
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.store.contract import Entry


@frozen_dataclass
class Provenance:
    """The stored engines of a compiled module, with what built them and for which target.

    Attributes:
        backend: the backend that built them.
        target: the target as in the key; ``label`` is its readable form.
        toolchain: the toolchain as in the key.
        entries: the engines' entries by partition number; 0 for a program that is one engine.
        division: the partitions.
        parameters: names of the model's weights that are parameters; all others are buffers.
        settings: the caller's settings; None if unknown.
        example_sizes: the example's dynamic sizes by the numbers of their symbols, as far as they are known.
    """

    backend: str
    target: Mapping[str, Json]
    label: str
    toolchain: Mapping[str, Json]
    entries: Mapping[int, Entry]
    division: PartitionedProgram = field(default_factory=PartitionedProgram)
    parameters: frozenset[str] = frozenset()
    settings: Settings | None = None
    example_sizes: Mapping[int, int] = field(default_factory=dict)


def load_members(entry: Entry) -> Entry:
    """Return an entry with all members in memory, independent of its file."""
    return replace(entry, contents={name: entry.read(name) for name in entry.members})


def parameters_of(state: Mapping[str, object]) -> frozenset[str]:
    """Return the names of parameters."""
    import torch

    return frozenset(name for name, one in state.items() if isinstance(one, torch.nn.Parameter))


def slot_values(interface: Interface, weights: EngineWeights) -> dict[int, torch.Tensor]:
    """Return each slot's current value, by number.

    Raises:
        RefitError: model weights that an engine weight is computed from are not known, or have changed.
    """
    values = {one.slot.index: weights[one.name].detach() for one in interface.weights if one.slot is not None}
    made = [one for one in interface.weights if one.slot is None]
    for weight in made:
        for slot in weight.slots:
            tensor = weights.source_weights.get(slot.index)
            if slot.index not in values and tensor is not None:
                values[slot.index] = tensor
    missing, changed = [], []
    for weight in made:
        missing += [slot.names[0] for slot in weight.slots if slot.index not in values]
        if not missing and not alike(_evaluate_recipe(weight, values), weights[weight.name]):
            changed.append(f"{weight.label} (it has changed since; refit the module with the model first)")
    if missing or changed:
        raise RefitError(missing=tuple(missing), mismatched=tuple(changed))
    return values


def check_frozen(origin: Provenance, interface: Interface, values: Mapping[int, torch.Tensor]) -> None:
    """Check that engines with values of weights in them were built with these.

    Args:
        origin: the engines.
        interface: the interface of the whole program.
        values: each slot's value, by number.

    Raises:
        RefitError: a weight has another value.
    """
    from trtcache.weights.fingerprints import fingerprints  # imports torch

    tensors = {name: values[slot.index] for slot in interface.slots for name in slot.names}
    changed = set()
    for number, entry in origin.entries.items():
        parts = entry.key.parts
        frozen = dict(parts.get("frozen", ()))
        engine = interface if origin.division.is_one_engine else origin.division.engines[number].program.interface
        names = [slot.names[0] for slot in engine.slots if slot.index in frozen]
        found: Any = canonical(fingerprints([tensors[name] for name in names]))
        before = [frozen[slot.index] for slot in engine.slots if slot.index in frozen]
        changed |= {name for name, now, then in zip(names, found, before, strict=True) if now != then}
    if changed:
        why = "(it has changed since the engine was built with its value in it; compile the model again)"
        raise RefitError(mismatched=tuple(f"{name} {why}" for name in sorted(changed)))


def _evaluate_recipe(weight: EngineWeight, values: Mapping[int, torch.Tensor]) -> torch.Tensor:
    import torch

    with torch.no_grad():
        given: dict[str | int, torch.Tensor] = dict(values.items())
        made = evaluate(weight.recipe, given)
        return made.new_empty_strided(weight.shape, weight.stride).copy_(made)


@frozen_dataclass
class Executable:
    """What a compiled module needs to know of its program.

    Attributes:
        interface: inputs, results, slots with the model's names, and constants.
        device: where the engine runs.
        constants: the constants' tensors by the engine's names.
        known: all names of weights and constants in the model.
        constant_contents: contents of the model's own constants by name; a refit with a module compares them.
        live: handles of the compiled modules that the program calls; none of a stored entry, which has a key.
    """

    interface: Interface
    device: torch.device
    constants: Mapping[str, torch.Tensor]
    known: frozenset[str]
    constant_contents: Mapping[str, Content]
    live: frozenset[str] = frozenset()

    @classmethod
    def of(cls, program: LoweredProgram) -> Executable:
        """Return the executable of a lowered program; its graph is dropped."""
        known, constants, contents = frozenset(program.state), program.constants, program.constant_contents
        return cls(program.interface, program.device, constants, known, contents, program.live)

    @classmethod
    def from_entry(cls, entry: Entry, alias: KeyAlias) -> Executable:
        """Return the executable of a verified entry, with the names and the device of an alias that leads to it.

        Raises:
            IncompatibleEngineError: the members have another version, or do not match the key document.
        """
        try:
            document = json.loads(bytes(entry.read(INTERFACE)))
            recipes = json.loads(bytes(entry.read(WEIGHT_MAP)))
            _check(document, entry)
            if len(alias.names) != len(document["slots"]):
                why = f"it has {len(document['slots'])} slots, and names are known for {len(alias.names)}"
                raise IncompatibleEngineError(entry.key.digest, why)
            interface = parse_interface(document, recipes, alias.names)
            constants = read_constants(bytes(entry.read(CONSTANTS)), document["constants"], alias.device)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise IncompatibleEngineError(entry.key.digest, f"its members cannot be read: {error!r}") from error
        return cls(interface, alias.device, constants, alias.known, alias.constant_contents)


def _check(document: Mapping[str, Any], entry: Entry) -> None:
    """Compare an interface with its entry's key document."""
    if document.get("format") != INTERFACE_FORMAT:
        found = f"its interface is of version {document.get('format')}, and {INTERFACE_FORMAT} is known"
        raise IncompatibleEngineError(entry.key.digest, f"{found}; TRTCACHE_RECACHE=1 builds it again")
    parts = entry.key.parts
    layouts = [layout for *_, layout in document["results"]]
    for name, written in (
        ("inputs", document["inputs"]),
        ("values", document["values"]),
        ("sizes", document["sizes"]),
        ("layouts", layouts),
        ("views", document.get("views", [])),
        ("guards", document.get("guards", [])),
    ):
        if parts.get(name, []) != written:
            raise IncompatibleEngineError(entry.key.digest, f"its {name} are not those of its key")


def parse_interface(
    document: Mapping[str, Any], recipes: Mapping[str, Json], names: Sequence[Sequence[str]]
) -> Interface:
    """Return the interface that a document describes, with the model's names for its slots.

    Raises:
        ValueError: the document is inconsistent; LookupError, TypeError and AttributeError are possible too.
    """
    slots = tuple(
        Slot(index, *_geometry(one), tuple(own), mutated=one["mutated"], transient=one["transient"])
        for index, (one, own) in enumerate(zip(document["slots"], names, strict=True))
    )
    shapes = document["weights"]
    if sorted(recipes) != sorted(f"w{index}" for index in range(len(shapes))):
        raise ValueError("the weight map names other weights than the interface")
    weights = []
    for index, one in enumerate(shapes):
        recipe = parse(recipes[f"w{index}"])
        used = tuple(slots[int(number)] for number in dict.fromkeys(sources(recipe)))
        weights.append(EngineWeight(index, recipe, *_geometry(one), used))
    return Interface(
        inputs=tuple(map(_tensor_input, document["inputs"])),
        values=tuple(ValueInput(int(leaf), _value(value)) for leaf, value in document["values"]),
        results=tuple(_result(one, view) for one, view in zip_longest(document["results"], document.get("views", ()))),
        slots=slots,
        weights=tuple(weights),
        constants=tuple(document["constants"][name][0] for name in in_order(document["constants"])),
        ranges=tuple((least, most) for least, most in document["sizes"]),
        outputs=tuple(  # old entries have none
            TensorOutput(one["dtype"], tuple(one["shape"]), one["device"]) for one in document.get("outputs", ())
        ),
        guards=tuple(document.get("guards", ())),
        small_sizes=SmallSizes.read(document.get("small_sizes")),
    )


def _geometry(written: Mapping[str, Any]) -> tuple[str, tuple[Any, ...], tuple[Any, ...], str]:
    """Return dtype, shape, strides and device of a tensor."""
    return written["dtype"], tuple(written["shape"]), tuple(written["stride"]), written["device"]


def _tensor_input(written: Mapping[str, Any]) -> TensorInput:
    flags = bool(written.get("number")), bool(written.get("fixed_layout"))
    return TensorInput(written["leaf"], *_geometry(written), *flags)


def _result(written: Sequence[Any], view: object) -> Result:
    kind, target, value, layout = written
    read = value if kind == "size" else _value(value)
    if view not in {None, "view", "detached"}:
        raise ValueError(f"{view!r:.40} is not a kind of view")
    return Result(kind, target, read, None if layout is None else tuple(layout), view)


def _value(written: object) -> object:
    """Parse the number, text or None in the canonical form of ``trtcache.digests``."""
    match written:
        case None | bool() | int() | str():
            return written
        case {"$float": str(value)}:
            return float.fromhex(value)
    raise ValueError(f"{written!r} is not a value of a leaf")


def in_order(names: Iterable[str]) -> list[str]:
    """Return constant names sorted by number: ``c0``, ``c1``, ... ``c10``."""
    return sorted(names, key=lambda name: int(name.removeprefix("c")))


def read_constants(
    content: bytes, written: Mapping[str, tuple[str, str]], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the constants on the engine's devices.

    Args:
        content: the member.
        written: digest and device type of each, as in the interface.
        device: the engine's.

    Raises:
        ValueError: one is missing or does not match its digest.
        LookupError: a dtype is unknown.
        TypeError: the header has an unknown form.
    """
    placed: dict[str, torch.Tensor] = {}
    if not written:
        return placed
    from trtcache.frontends.weight_files import LENGTH_BYTES, tensor_at  # it imports torch

    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:start])
    data = memoryview(bytearray(content[start:]))
    for name in in_order(written):
        digest, kind = written[name]
        tensor = tensor_at(header[name], data)
        if Content.of(tensor).digest != digest:
            raise ValueError(f"constant {name} does not match the key")
        placed[name] = tensor.to(device if kind == device.type else kind)
    return placed

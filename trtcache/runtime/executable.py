"""What runs an engine beside the engine itself: the program's border, its constants, and the model's names for weights.

There are two ways to it: from a program that was just lowered, or from the members of a stored entry together with what
an artifact never holds, the model's own names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends.members import CONSTANTS, INTERFACE, INTERFACE_FORMAT, WEIGHT_MAP
from trtcache.errors import IncompatibleEngineError
from trtcache.lowering.interface import Interface, Result, SmallSizes, TensorInput, TensorOutput, ValueInput
from trtcache.runtime.constants import in_order, read_constants
from trtcache.weights.recipes import parse, sources
from trtcache.weights.slots import EngineWeight, Slot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.contents import Content
    from trtcache.store.entry import Entry


@dataclass(frozen=True, slots=True)
class Executable:
    """All that a compiled module needs to know of its program.

    Attributes:
        interface: inputs, results, slots with the model's names for them, and constants.
        device: where the engine runs.
        constants: the constants' tensors, by the engine's names for them.
        known: every name that the model has for a weight or a constant.
        sources: what the model's own constants are, by its names for them; a refit with a module compares them.
    """

    interface: Interface
    device: torch.device
    constants: Mapping[str, torch.Tensor]
    known: frozenset[str]
    sources: Mapping[str, Content]

    @classmethod
    def of(cls, program: LoweredProgram) -> Executable:
        """Return what is kept of a lowered program; its graph is not."""
        return cls(program.interface, program.device, program.constants, frozenset(program.state), program.sources)

    @classmethod
    def stored(
        cls,
        entry: Entry,
        *,
        names: Sequence[Sequence[str]],
        known: frozenset[str],
        sources: Mapping[str, Content],
        device: torch.device,
    ) -> Executable:
        """Return what an entry's members say, with the names that they lack.

        Args:
            entry: an entry that was verified, and whose key document is the caller's own.
            names: the model's names for the weight of each slot.
            known: as the attribute.
            sources: as the attribute.
            device: as the attribute.

        Raises:
            IncompatibleEngineError: the members are of another version, or are not what the key document says.
        """
        try:
            document = json.loads(bytes(entry.read(INTERFACE)))
            recipes = json.loads(bytes(entry.read(WEIGHT_MAP)))
            _check(document, entry)
            _check_names(document, names, entry)
            interface = interface_of(document, recipes, names)
            constants = read_constants(bytes(entry.read(CONSTANTS)), document["constants"], device)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise IncompatibleEngineError(entry.key.digest, f"its members cannot be read: {error!r}") from error
        return cls(interface, device, constants, known, sources)


def _check(document: Mapping[str, Any], entry: Entry) -> None:
    """Compare an interface with the key document that its entry was found by.

    Raises:
        IncompatibleEngineError: they differ, or the interface is of another version.
    """
    if document.get("format") != INTERFACE_FORMAT:
        found = f"its interface is of version {document.get('format')}, and {INTERFACE_FORMAT} is known"
        raise IncompatibleEngineError(entry.key.digest, f"{found}; TRTCACHE_RECACHE=1 builds it again")
    parts: Any = entry.key.document["parts"]
    layouts = [layout for *_, layout in document["results"]]
    for name, written in (
        ("inputs", document["inputs"]),
        ("values", document["values"]),
        ("sizes", document["sizes"]),
        ("layouts", layouts),
        ("guards", document.get("guards", [])),
    ):
        if parts.get(name, []) != written:
            raise IncompatibleEngineError(entry.key.digest, f"its {name} are not those of its key")


def _check_names(document: Mapping[str, Any], names: Sequence[Sequence[str]], entry: Entry) -> None:
    """Compare the slots of an interface with those that names are known for.

    Raises:
        IncompatibleEngineError: there are more or fewer.
    """
    if len(names) != len(document["slots"]):
        found = f"it has {len(document['slots'])} slots, and names are known for {len(names)}"
        raise IncompatibleEngineError(entry.key.digest, found)


def interface_of(document: Mapping[str, Any], recipes: Mapping[str, Json], names: Sequence[Sequence[str]]) -> Interface:
    """Return the interface that a document describes, with the model's names for its slots.

    Raises:
        ValueError: they do not fit each other; it can also be a LookupError, TypeError or AttributeError.
    """
    slots = tuple(_slot(index, *one) for index, one in enumerate(zip(document["slots"], names, strict=True)))
    shapes = document["weights"]
    if sorted(recipes) != sorted(f"w{index}" for index in range(len(shapes))):
        raise ValueError("the weight map names other weights than the interface")
    weights = tuple(_weight(index, one, recipes[f"w{index}"], slots) for index, one in enumerate(shapes))
    return Interface(
        inputs=tuple(map(_tensor_input, document["inputs"])),
        values=tuple(ValueInput(int(leaf), _value(value)) for leaf, value in document["values"]),
        results=tuple(map(_result, document["results"])),
        slots=slots,
        weights=weights,
        constants=tuple(document["constants"][name][0] for name in in_order(document["constants"])),
        ranges=tuple((least, most) for least, most in document["sizes"]),
        outputs=tuple(map(_tensor_output, document.get("outputs", ()))),  # entries of before have none
        guards=tuple(document.get("guards", ())),
        small_sizes=SmallSizes.read(document.get("small_sizes")),
    )


def _tensor_input(written: Mapping[str, Any]) -> TensorInput:
    shape, stride = tuple(written["shape"]), tuple(written["stride"])
    return TensorInput(
        written["leaf"], written["dtype"], shape, stride, written["device"], written.get("number", False)
    )


def _tensor_output(written: Mapping[str, Any]) -> TensorOutput:
    return TensorOutput(written["dtype"], tuple(written["shape"]), written["device"])


def _result(written: Sequence[Any]) -> Result:
    kind, target, value, layout = written
    read = value if kind == "size" else _value(value)
    return Result(kind, target, read, None if layout is None else tuple(layout))


def _slot(index: int, written: Mapping[str, Any], names: Sequence[str]) -> Slot:
    shape, stride = tuple(written["shape"]), tuple(written["stride"])
    flags = {"mutated": written["mutated"], "transient": written["transient"]}
    return Slot(index, written["dtype"], shape, stride, written["device"], tuple(names), **flags)


def _weight(index: int, written: Mapping[str, Any], recipe: Json, slots: Sequence[Slot]) -> EngineWeight:
    made = parse(recipe)
    used = tuple(slots[int(number)] for number in dict.fromkeys(sources(made)))
    shape, stride = tuple(written["shape"]), tuple(written["stride"])
    return EngineWeight(index, made, written["dtype"], shape, stride, written["device"], used)


def _value(written: object) -> object:
    """Return the number, text or None that ``values.canonical`` wrote."""
    match written:
        case None | bool() | int() | str():
            return written
        case {"$float": str(value)}:
            return float.fromhex(value)
    raise ValueError(f"{written!r} is no value of a leaf")

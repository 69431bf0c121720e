"""The operator ``trtcache::execute_engine``: tracers see an engine as one call.

``torch.export``, ``torch.compile`` and ``FakeTensorMode`` cannot trace into an engine. They see this operator; its fake
implementation computes dtype, shape, strides and device of each output from the engine's specs alone, including dynamic
sizes. Without trtcache a program with it loads after one line: ``torch.library.define`` of ``NAME`` and ``SCHEMA``.

In this process an engine is identified by a handle that is unique everywhere. The arguments that are empty here
(``weights``, ``key``, ``weight_map``) are for programs that contain their engines; a new argument would get a default.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import GuardError, IncompatibleEngineError, InputError
from trtcache.lowering.interface import Interface, affine, describe, evaluate
from trtcache.lowering.operators import LIVE_ENGINE, LIVE_PREFIX
from trtcache.runtime.checks import shape_text
from trtcache.weights.slots import dtype_name

NAME = LIVE_ENGINE
SCHEMA = (
    "(Tensor[] inputs, Tensor[] weights, str engine, str key, str weight_map, str input_spec, str output_spec)"
    " -> Tensor[]"
)


class LiveEngine(Protocol):
    """An engine of this process that the operator calls."""

    def execute(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return new tensors with the layout of the output spec; MUST check the inputs."""
        ...


_LIVE: WeakValueDictionary[str, LiveEngine] = WeakValueDictionary()


@frozen_dataclass
class EngineCall:
    """The operator's arguments for one engine of this process.

    Attributes:
        handle: the engine's handle, valid as long as it lives.
        leaves: the leaves of a call's arguments that the engine takes.
        numbers: the leaves that are dynamic ints, with the device type of the tensor that represents each.
        input_spec, output_spec: its inputs and outputs, as JSON.
    """

    handle: str
    leaves: tuple[int, ...]
    input_spec: str
    output_spec: str
    numbers: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, interface: Interface, live: LiveEngine) -> EngineCall | None:
        """Register an engine; None if calls modify its weights, which no tracer supports, or its entry is too old."""
        if any(slot.mutated for slot in interface.slots):
            return None
        try:
            specs = specs_of(interface)
        except ValueError:
            return None
        numbers = tuple((one.leaf, one.device) for one in interface.inputs if one.number)
        handle = f"{LIVE_PREFIX}{secrets.token_hex(8)}"
        _LIVE[handle] = live
        return cls(handle, tuple(one.leaf for one in interface.inputs), *specs, numbers)

    def __call__(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """Call the operator with the leaves of a call's arguments; results have no gradient."""
        if self.numbers:
            leaves = with_carriers(leaves, self.numbers)
        inputs = [leaves[leaf].detach() if leaves[leaf].requires_grad else leaves[leaf] for leaf in self.leaves]
        outputs: list[torch.Tensor] = torch.ops.trtcache.execute_engine(
            inputs, [], self.handle, "", "", self.input_spec, self.output_spec
        )
        return outputs


def specs_of(interface: Interface, *, changed: bool = False) -> tuple[str, str]:
    """Return an engine's input and output specs as JSON; with ``changed`` outputs include new contents of weights.

    Raises:
        ValueError: its entry is too old to describe outputs.
    """
    layouts = [one.layout for one in interface.results if one.is_output]
    if len(interface.outputs) != len(layouts):
        raise ValueError("its entry does not describe the engine's outputs; build it again: TRTCACHE_RECACHE=1")
    inputs = [{"dtype": one.dtype, "shape": one.shape, "device": one.device} for one in interface.inputs]
    outputs = [{**one.document(), "layout": layout} for one, layout in zip(interface.outputs, layouts, strict=True)]
    if changed:
        outputs += [
            {"dtype": slot.dtype, "shape": list(slot.shape), "device": slot.device, "layout": None}
            for slot in interface.slots
            if slot.mutated
        ]
    taken: dict[str, object] = {"inputs": inputs, "ranges": interface.checked_ranges}
    if interface.conditions:
        taken["guards"] = interface.conditions
    return json.dumps(taken), json.dumps(outputs)


def with_carriers(leaves: Sequence[Any], numbers: Iterable[tuple[int, str]]) -> list[Any]:
    """Return the leaves of a call with a tensor of shape (int, 0) in place of each dynamic int."""
    carried = list(leaves)
    for leaf, kind in numbers:
        devices = (one.device for one in leaves if isinstance(one, torch.Tensor) and one.device.type == kind)
        carried[leaf] = torch.empty((leaves[leaf], 0), device=next(devices, torch.device(kind)), dtype=torch.float32)
    return carried


def is_tracing() -> bool:
    """Return whether a tracer, or a mode such as ``FakeTensorMode``, records the operators of a call."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None  # torch.jit.trace, and the older torch.onnx.export
    )


def is_fake(leaves: Sequence[Any]) -> bool:
    """Return whether a call has fake tensors, whatever mode is active."""
    from torch._subclasses.fake_tensor import FakeTensor  # torch.export imports it; a hit does not

    return any(isinstance(leaf, FakeTensor) for leaf in leaves)


def places(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the addresses of the tensors' memory."""
    return {one.untyped_storage().data_ptr() for one in tensors if one.numel()}


def separate_memory(outputs: Sequence[torch.Tensor], seen: set[int]) -> list[torch.Tensor]:
    """Return outputs that each own their memory, as the schema promises.

    torch.compile reuses the memory of an operator's outputs, and would write into a weight.

    Args:
        outputs: the outputs of an engine.
        seen: the addresses of memory that others use: that of inputs, weights and constants. The outputs' are added.
    """
    results = []
    for output in outputs:
        place = output.untyped_storage().data_ptr() if output.numel() else None
        results.append(output.clone() if place in seen else output)
        seen.add(place or 0)
    return results


def _execute(
    inputs: list[torch.Tensor],
    weights: list[torch.Tensor],  # noqa: ARG001  # the schema's; so are the others
    engine: str,
    key: str,  # noqa: ARG001
    weight_map: str,  # noqa: ARG001
    input_spec: str,  # noqa: ARG001
    output_spec: str,  # noqa: ARG001
) -> list[torch.Tensor]:
    live = _LIVE.get(engine)
    if live is None and not engine.startswith(LIVE_PREFIX):
        why = "torch.export.load verifies no engine and runs none; trtcache.load does"
        raise IncompatibleEngineError("in a program", why)
    if live is None:
        why = "a traced program stores only a handle of its engine, and this process has no engine with that handle"
        raise IncompatibleEngineError(engine, f"{why}; keep the compiled module, or compile and trace again here")
    return live.execute(inputs)


def _fake(
    inputs: list[torch.Tensor],
    weights: list[torch.Tensor],  # noqa: ARG001  # the schema's; so are the others
    engine: str,  # noqa: ARG001
    key: str,  # noqa: ARG001
    weight_map: str,  # noqa: ARG001
    input_spec: str,
    output_spec: str,
) -> list[torch.Tensor]:
    taken = _read(input_spec)
    sizes = _sizes(taken["inputs"], inputs)
    for number, (least, most) in enumerate(taken["ranges"]):
        if number in sizes:
            _require(least is None or sizes[number] >= least, "a size of an input", f"at least {least}", sizes[number])
            _require(most is None or sizes[number] <= most, "a size of an input", f"at most {most}", sizes[number])
    for guard in taken.get("guards", ()):
        _require(evaluate(guard, sizes), "sizes", describe(guard, {}), "others", GuardError)
    return [_empty(one, sizes, inputs) for one in _read(output_spec)]


@functools.lru_cache(maxsize=256)
def _read(spec: str) -> Any:
    return json.loads(spec)


def _sizes(taken: Sequence[Mapping[str, Any]], inputs: Sequence[torch.Tensor]) -> dict[int, Any]:
    """Return the symbols' sizes, which may be the tracer's symbols."""
    sizes: dict[int, Any] = {}
    for number, (spec, given) in enumerate(zip(taken, inputs, strict=True)):
        found = f"{dtype_name(given.dtype)} on {given.device.type} of {given.dim()} dimensions"
        expected = f"{spec['dtype']} on {spec['device']} of {len(spec['shape'])} dimensions"
        _require(found == expected, f"input {number} of the engine", expected, found)
        for written, size in zip(spec["shape"], given.shape, strict=True):
            if isinstance(written, dict):
                sizes.setdefault(written["sym"], size)
    for number, (spec, given) in enumerate(zip(taken, inputs, strict=True)):
        for place, (written, size) in enumerate(zip(spec["shape"], given.shape, strict=True)):
            symbol, factor, more = affine(written) or (0, 0, 0)
            if factor and symbol not in sizes:  # solve ``factor * s + more`` for the symbol ``s``
                sizes[symbol] = (size - more) // factor
            fitting = evaluate(written, sizes)
            _require(fitting == size, f"dimension {place} of input {number} of the engine", str(fitting), size)
    return sizes


def _require(condition: Any, where: str, expected: str, found: object, kind: type[InputError] = InputError) -> None:
    """Raise if a condition is false, or add it to the tracer's guards."""
    error = kind(where, expected, str(found))
    if isinstance(condition, torch.SymBool):
        torch._check(condition, lambda: str(error))  # type: ignore[no-untyped-call]  # torch's
    elif not condition:
        raise error


def _empty(spec: Mapping[str, Any], sizes: Mapping[int, Any], inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    shape = [evaluate(written, sizes) for written in spec["shape"]]
    if any(size is None for size in shape):
        hint = "write the model with torch.export.save, and pass that file to trtcache.compile"
        found = f"{shape_text(spec['shape'])} with a size that depends on values"
        raise InputError("outputs of the engine", "sizes that its inputs' sizes determine", found, hint)
    device = next(
        (given.device for given in inputs if given.device.type == spec["device"]), torch.device(spec["device"])
    )
    order = spec["layout"] or list(range(len(shape)))
    made = torch.empty([shape[place] for place in order], dtype=getattr(torch, spec["dtype"]), device=device)
    return made.permute(sorted(range(len(order)), key=order.__getitem__))


def _declare() -> torch.library.Library:
    """Define the operator, unless a reader of exported programs has."""
    library = torch.library.Library("trtcache", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
    try:
        library.define(f"execute_engine{SCHEMA}")  # type: ignore[no-untyped-call]  # torch's
    except RuntimeError:
        if not hasattr(torch.ops.trtcache, "execute_engine"):
            raise
    library.impl("execute_engine", _execute, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]  # torch's
    # torch notes the module of the caller, for which inspect first resolves the file of each loaded module, unless this
    # file is in its table: that took 17 of the 106 ms of imports of a hit.
    if (known := getattr(inspect, "modulesbyfile", None)) is not None:
        known.setdefault(os.path.normcase(os.path.abspath(_declare.__code__.co_filename)), __name__)  # noqa: PTH100
    torch.library.register_fake(NAME, _fake, lib=library)
    return library


_LIBRARY = _declare()  # kept alive by this module: torch registers operators per process, on import

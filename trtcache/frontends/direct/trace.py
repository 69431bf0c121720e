"""Traces: the operations that a model performs on tensors without values.

A trace is a list of lines in the order of the calls:

- ``[operator, arguments, keyword arguments, result]``: a call of an operator as ``__torch_dispatch__`` sees it, below
  autograd and autocast, with composite operators decomposed;
- ``["grad", 0]``: gradients are disabled from here on;
- ``["assigned", name, ...]``: parameters and buffers that were assigned;
- ``["changed", kind, name, value]``: a program's new value of a buffer or an input;
- ``["results", structure, value, ...]``: what the model returns;
- ``["sizes", known, conditions]``: what is known of symbols, if sizes are dynamic.

Different values are written differently. Numbers, texts and None are written as they are, but for ``["b", 1]`` (True),
``["f", hex]`` (a float), ``["c", hex, hex]`` (complex), ``["s", class, term]`` (a symbolic size), ``["n", text]`` (a
dtype, device, layout or memory format), ``["l", ...]`` (a sequence; a tuple as a result is ``["u", ...]``) and ``["d",
[key, value], ...]``. A tensor is ``["t", name]``, whose name is ``weight NAME``, ``input PLACE``, the number of the
result that it is, or for a constant the list of ``TraceWriter.name_constant``. A new result is ``["new", number,
dtype, sizes, strides, offset, device, base]``; base is the name of a tensor whose memory it has.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import hash_bytes
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct.executed_code import ExecutedCode
from trtcache.frontends.direct.export_context import export_context
from trtcache.lowering.caches import preserve_caches
from trtcache.lowering.forward_hooks import copy_attributes, record_changed_arguments, watch_assignments
from trtcache.lowering.interface import Content
from trtcache.lowering.model_state import preserve_state, quiet
from trtcache.lowering.operators import TORCHS_OWN

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from trtcache.digests import Json
    from trtcache.frontends.source import Specs

Trace = list[Any]
_Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int, torch.device]

DEVICE_QUERY = torch.ops.prim.device.default  # C++ code gets the device of a fake tensor with it
_NUMBER = torch.ops.aten._local_scalar_dense.default
_RESHAPED_IN_PLACE = frozenset(
    getattr(torch.ops.aten, name)
    for name in ("as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_")
)
"""Operators that change the sizes and strides of their argument; a replay runs these. Others have no trace."""

_DEEPER = 26
"""Frames between the caller of ``compile`` and ``forward`` that only an export has."""
_PLAIN = frozenset({int, str, type(None)})
_WITHOUT_TENSORS = frozenset({bool, int, float, str, torch.Size, torch.dtype, torch.device, torch.layout})
TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
NAMED = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format})


class TraceWriter:
    """Writes values as JSON, and keeps the names of tensors: by their C++ objects."""

    def __init__(self) -> None:
        self.lines: Trace = []
        self._names: dict[int, Json] = {}
        self._memories: dict[int, Json] = {}
        self._tensors: dict[Any, tuple[weakref.ref[torch.Tensor], int]] = {}  # with the address of the memory
        self._equal: dict[Any, dict[int, int]] = {}  # constants of one content, with their numbers
        self._freed_later: list[Any] = []  # weak references, so that no address of a freed tensor is used again
        self._has_grad = True
        self._dtype = torch.get_default_dtype()
        self.code = ExecutedCode()
        self._constants: list[tuple[torch.Tensor, list[Json]]] = []
        self._functions: list[Json] = []

    def name(self, tensor: torch.Tensor, name: Json) -> None:
        """Name a tensor, and remember it by that; one that is named already keeps its name."""
        first = self._names.setdefault(tensor._cdata, name)
        self._freed_later.append(torch._C._WeakTensorRef(tensor))  # type: ignore[attr-defined]  # torch's
        if tensor.layout == torch.strided:
            memory = tensor.untyped_storage()
            address = memory._cdata
            if address not in self._memories:
                self._memories[address] = first
                self._freed_later.append(StorageWeakRef(memory))  # type: ignore[no-untyped-call]  # torch's
            if not isinstance(name, list):
                self._tensors.setdefault(name, (weakref.ref(tensor), address))

    def write(self, value: Any) -> Json:
        """Write an argument.

        Raises:
            NotComparableError: it has no description.
        """
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return ["t", self._name_of(value)]
        if kind in _PLAIN:
            plain: Json = value
            return plain
        if isinstance(value, (list, tuple)):
            return ["l", *self._write_items(value)]
        if kind is bool:
            return ["b", int(value)]
        if kind is float:
            return ["f", value.hex()]
        if kind in NAMED:
            return ["n", str(value)]
        if kind is complex:
            return ["c", value.real.hex(), value.imag.hex()]
        if isinstance(value, dict):
            return ["d", *([str(key), self.write(item)] for key, item in value.items())]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            term: Any = value  # ``finish`` writes it, when all is known of its symbols
            return ["s", kind.__name__, term]
        raise NotComparableError(f"an operator has an argument of class {kind.__qualname__}")

    def _write_items(self, items: Iterable[Any]) -> list[Json]:
        """Write most arguments, without a call for each."""
        written: list[Json] = []
        for item in items:
            if type(item) in _PLAIN:
                written.append(item)
            elif type(item) is FakeTensor and (name := self._names.get(item._cdata)) is not None:
                written.append(["t", name])
            else:
                written.append(self.write(item))
        return written

    def _name_of(self, tensor: torch.Tensor) -> Json:
        if (known := self._names.get(tensor._cdata)) is not None:
            return known
        if isinstance(tensor, FakeTensor):
            raise NotComparableError("an operator uses a tensor without values that comes from elsewhere")
        if isinstance(self._memories.get(tensor.untyped_storage()._cdata), str):
            raise NotComparableError("a constant shares memory with a weight")
        name = self.name_constant(tensor)
        self.name(tensor, name)
        return name

    @property
    def is_hit(self) -> bool:
        """Whether a run is in place of an export."""
        return False

    def name_constant(self, tensor: torch.Tensor) -> Json:
        """Return the name of a constant: its content and properties, and the number among constants that are equal.

        Raises:
            NotComparableError: it is of a derived class, sparse, or without values.
        """
        content = write_constant(tensor)
        self._constants.append((tensor, content))
        numbers = self._equal.setdefault(str(content), {})
        return [*content, numbers.setdefault(tensor._cdata, len(numbers))]

    def finish(self, spec: pytree.TreeSpec, leaves: Iterable[Any]) -> None:
        """Write the last line: the results of the model.

        Raises:
            NotComparableError: an argument or a result is computed with floats from symbolic sizes, or the content of a
                constant has changed: an export has that at its end.
        """
        if any(write_constant(tensor) != content for tensor, content in self._constants):
            raise NotComparableError("forward changes the memory of a constant")
        self.code.functions = hash_bytes(json.dumps(_plain(self._functions, is_exact=False)).encode()).hex()
        self.lines.append(["results", describe_structure(spec), *map(self.write, leaves)])
        for line in self.lines:  # the result of a call follows from the call
            line[:] = [*_plain(line[:3], is_exact=True), *_plain(line[3:], is_exact=len(line) != 4)]

    def clear(self) -> None:
        """Forget all tensors: fake ones lead to their mode, and are not freed with what that leads to."""
        for table in (self._names, self._memories, self._tensors, self._equal):
            table.clear()
        for values in (self._freed_later, self._constants, self._functions):
            values.clear()

    def note_function(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call of one of torch's functions above the operators of the trace, if it can be a node of a program.

        ``view`` and ``reshape``, or ``contiguous`` and nothing, can be the same operators for the example arguments. A
        program has different guards with them: for calls in which they are not the same.
        """
        if not _can_be_node(result):
            return
        written: list[Json] = [_name_of_function(function), len(args)]
        for values in (args, [*chain.from_iterable(kwargs.items())]) if kwargs else (args,):
            try:
                written += self._write_items(values)
            except NotComparableError:  # one has no description
                written += map(self._write_any, values)
        self._functions.append(written)

    def _write_any(self, value: Any) -> Json:
        """Write an argument of a function: its class if it has no description."""
        for kind in (int, float):
            if isinstance(value, kind) and not isinstance(value, bool):
                value = kind(value)  # operators get a number of a derived class, such as NumPy's float64, so, too
        try:
            return self.write(value)
        except NotComparableError:
            return ["?", type(value).__qualname__]

    def write_call(self, function: Any, args: Any, kwargs: Any) -> list[Json]:
        """Write the call of an operator, with a line before it if gradients were enabled or disabled.

        Raises:
            NotComparableError: an argument has no description, or results have another dtype than its arguments say.
        """
        if torch.get_default_dtype() is not self._dtype:
            raise NotComparableError("forward changes the default dtype")
        if torch.is_grad_enabled() is not self._has_grad:
            self._has_grad = not self._has_grad
            self.lines.append(["grad", int(self._has_grad)])
        named: Json = self.write(kwargs) if kwargs else ["d"]
        return [operator_of(function).text, ["l", *self._write_items(args)], named]

    def write_result(self, result: Any) -> Json:
        """Write a result: a new tensor with its number, dtype, layout, device, and the tensor whose memory it has.

        Raises:
            NotComparableError: it is not a plain tensor or value.
        """
        if not isinstance(result, torch.Tensor):
            if isinstance(result, (list, tuple)):
                return ["l" if isinstance(result, list) else "u", *map(self.write_result, result)]
            return self.write(result)
        if result._cdata in self._names:
            return ["t", self._names[result._cdata]]
        if not _is_plain(result):
            raise NotComparableError("a result is sparse, without a device, or lazily conjugated")
        number, base = len(self._names), self._memories.get(result.untyped_storage()._cdata)
        self.name(result, number)
        sizes = [list(map(self.write, one)) for one in (result.shape, result.stride())]
        offset = self.write(result.storage_offset())
        return ["new", number, str(result.dtype), *sizes, offset, str(result.device), base]


def _can_be_node(result: Any) -> bool:
    """Return whether a program can have a call with this result: there is a tensor in it, or it is None."""
    kind = type(result)
    if kind is FakeTensor or result is None or kind in _WITHOUT_TENSORS:  # most are
        return kind not in _WITHOUT_TENSORS
    return any(isinstance(one, torch.Tensor) for one in pytree.tree_leaves(result))


_names: dict[Any, str] = {}  # of functions of C, which torch has few of


def _name_of_function(function: Any) -> str:
    """Return the name of a function of torch; that of a property has the property's name."""
    kind = type(function)
    if kind is FunctionType:
        return f"{function.__module__} {function.__qualname__}"
    if kind is torch._ops.OpOverload:
        return operator_of(function).text
    if (known := _names.get(function)) is None:
        owner = getattr(function, "__self__", None)
        found = (getattr(one, name, "") for one in (owner, function) for name in ("__module__", "__qualname__"))
        known = _names[function] = " ".join(str(name) for name in (*found, getattr(owner, "__name__", "")))
    return known


class Operator:
    """What a trace needs of an operator.

    Attributes:
        function: the operator.
        text: its name and overload, which torch formats at each call.
        is_own: whether it is one of torch's own.
        is_reshaping: whether it changes the sizes and strides of its argument in place.
        is_profiling: whether it is one of ``record_function``.
    """

    __slots__ = ("function", "is_own", "is_profiling", "is_reshaping", "text")

    def __init__(self, function: Any) -> None:  # a generated one, as of a dataclass, would be among the code that runs
        self.function, self.text = function, str(function)
        self.is_own, self.is_profiling = function.namespace in TORCHS_OWN, function.namespace == "profiler"
        self.is_reshaping = function.overloadpacket in _RESHAPED_IN_PLACE


_operators: dict[int, Operator] = {}  # by identity: torch hashes operators in Python


def operator_of(function: Any) -> Operator:
    """Return what a trace needs of an operator."""
    known = _operators.get(id(function))
    return known if known is not None else _operators.setdefault(id(function), Operator(function))


def _plain(value: Any, *, is_exact: bool) -> Any:
    """Return a part of a trace as JSON, with the terms of symbolic sizes as torch knows them at the end.

    Raises:
        NotComparableError: ``is_exact``, and a term is computed with floats.
    """
    if isinstance(value, (list, tuple)):
        return [_plain(item, is_exact=is_exact) for item in value]
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if is_exact:
        from trtcache.frontends.direct.program_trace import require_exact

        require_exact(value.node.expr)
    return str(value.node.expr)


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is of torch's own classes, and has values and strides."""
    return type(tensor) in TENSORS and tensor.layout == torch.strided and tensor.device.type != "meta"


def write_constant(tensor: torch.Tensor) -> list[Json]:
    """Describe a constant: the digest of its content, its dtype, layout in memory and device.

    Raises:
        NotComparableError: it is of a derived class, sparse, or without values.
    """
    if not has_values(tensor):
        raise NotComparableError(f"a constant of class {type(tensor).__qualname__} has no values, or no strides")
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        content = Content.of(tensor)
    memory = int(tensor.storage_offset()), tensor.untyped_storage().nbytes()
    layout: list[Json] = [list(tensor.shape), list(tensor.stride()), *memory]
    return [content.digest, str(tensor.dtype), *layout, str(tensor.device)]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Writes each call of an operator, and its result, into the lines of a writer."""

    def __init__(self, writer: TraceWriter, known: KnownResults | None = None) -> None:
        """Begin a trace.

        Args:
            writer: writes the calls.
            known: results of earlier calls, which are added to; None if sizes are symbolic.
        """
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._writer, self._known = writer, known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_untraced(func, args):
            return call_untraced(func, args, kwargs)
        if torch.Tag.inplace_view in func.tags and not operator_of(func).is_reshaping:
            raise NotComparableError(f"{func} changes the shape of a tensor in place")
        call = self._writer.write_call(func, args, kwargs)
        result = func(*args, **kwargs) if self._known is None else self._known.get(func, args, kwargs)
        self._writer.lines.append([*call, self._writer.write_result(result)])
        return result


def is_untraced(function: Any, args: Any) -> bool:
    """Return whether a call is not in a trace.

    These are operators of ``record_function``, the look-up of a fake tensor's device, and ``item`` of a constant, whose
    number an export has in the operations that use it.
    """
    is_number = function is _NUMBER and has_values(args[0])
    return function is DEVICE_QUERY or is_number or operator_of(function).is_profiling


def call_untraced(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a call that is not in a trace."""
    if function is DEVICE_QUERY:
        return args[0].fake_device
    if function is _NUMBER:
        with _disable_current_modes():
            return args[0].item()
    return function(*args, **kwargs)


class KnownResults:
    """Fake results of operators, by the layouts of their arguments: to compute one takes up to 0.3 ms."""

    def __init__(self, mode: FakeTensorMode) -> None:
        """Know nothing yet; ``mode`` handles operators."""
        self._fakes = Fakes(mode)
        self._known: dict[Any, tuple[_Layout, int | None]] = {}

    def get(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a call: a new fake tensor if one is known, or else what the operator returns.

        Raises:
            NotComparableError: the operator changes the sizes of an argument, as that of ``out=``.
        """
        layouts = None if function._schema.is_mutable else _layouts((args, kwargs))
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if layouts is None:
            shapes = [tensor.shape for tensor in tensors]
            result = function(*args, **kwargs)
            if not operator_of(function).is_reshaping and shapes != [tensor.shape for tensor in tensors]:
                raise NotComparableError(f"{function} changes the sizes of an argument")
            return result
        if (known := self._known.get((function, layouts))) is not None:
            layout, base = known
            return self._fakes.make(*layout, None if base is None else tensors[base].untyped_storage())
        result = function(*args, **kwargs)
        if type(result) is FakeTensor and result.constant is None and _is_plain(result):
            memories = [tensor.untyped_storage()._cdata for tensor in tensors]
            memory = result.untyped_storage()._cdata
            self._known[function, layouts] = _layout(result), memories.index(memory) if memory in memories else None
        return result


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is dense, on a device, and neither conjugated nor negated lazily."""
    return tensor.layout == torch.strided and tensor.device.type != "meta" and not (tensor.is_conj() or tensor.is_neg())


def _layouts(value: Any) -> Any:
    """Return arguments with layouts in place of tensors; None if sizes depend on more, such as values of constants."""
    if isinstance(value, torch.Tensor):
        return _layout(value) if type(value) is FakeTensor and value.constant is None else None
    if isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else value
        found = tuple(map(_layouts, items))
        return None if None in found else found
    return type(value), value


def _layout(tensor: FakeTensor) -> _Layout:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.fake_device


class Fakes:
    """Makes fake tensors; those after the first one of a device quicker than the constructor, which takes 30 us."""

    def __init__(self, mode: FakeTensorMode) -> None:
        """Make tensors for a mode."""
        self._mode = mode
        self._attributes: dict[torch.device, tuple[torch.device, dict[str, Any]]] = {}

    def make(
        self,
        dtype: torch.dtype,
        shape: Sequence[int],
        stride: Sequence[int],
        offset: int,
        device: torch.device,
        memory: torch.UntypedStorage | None = None,
    ) -> torch.Tensor:
        """Return a fake tensor in given memory, or in memory of its own."""
        with torch._C._DisableTorchDispatch():  # the mode may be active
            if memory is not None:
                on_meta = torch.empty(0, dtype=dtype, device="meta").set_(memory, offset, shape, stride)
                _set_version(on_meta, 0)
                return self.wrap(on_meta, device)
            on_meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            if offset:
                size = on_meta.untyped_storage().nbytes() // dtype.itemsize
                on_meta = torch.empty(offset + size, dtype=dtype, device="meta").as_strided(shape, stride, offset)
            return self.wrap(on_meta, device)

    def wrap(self, on_meta: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return a fake tensor that a tensor on the meta device has the layout and memory of."""
        if device not in self._attributes:
            first = FakeTensor(self._mode, on_meta, device)
            self._attributes[device] = first.fake_device, dict(vars(first))
            return first
        found, attributes = self._attributes[device]
        subclass: Any = torch.Tensor._make_subclass
        made: torch.Tensor = subclass(
            FakeTensor, on_meta, on_meta.requires_grad, dispatch_device=True, device_for_backend_keys=found
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(attributes)
        return made

    def clear(self) -> None:
        """Forget the tensors that others are made like."""
        self._attributes.clear()


@frozen_dataclass
class Recording:
    """A trace, and what it was recorded with.

    Attributes:
        trace: the trace.
        mode: the mode of the fake tensors.
        inputs: the leaves of the arguments, fake tensors if their sizes are symbolic.
        specs: the structure of the arguments and of the results.
        results: the results of the operators; None if their sizes are symbolic.
        code: the model's code.
    """

    trace: Trace
    mode: FakeTensorMode
    inputs: list[Any]
    specs: Specs
    results: KnownResults | None
    code: ExecutedCode


def empty_shape_env() -> ShapeEnv:
    """Return an environment of symbolic sizes, such as the mode of an export has, that does not make any."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)


def record(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Recording:
    """Run a model on tensors without values, as ``torch.export`` does, and return its trace.

    Raises:
        NotComparableError: an operation cannot be written.
        Exception: the model's code raised it.
    """
    from torch._functorch import config

    with config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):  # as in an export
        mode = FakeTensorMode(allow_non_fake_inputs=True, static_shapes=True, shape_env=empty_shape_env())
    writer = TraceWriter()
    results = KnownResults(mode)
    out_spec = run(model, args, kwargs, writer, mode, Recorder(writer, results))
    inputs, in_spec = pytree.tree_flatten((args, dict(kwargs)))
    return Recording(writer.lines, mode, inputs, (in_spec, out_spec), results, writer.code)


def run(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    writer: TraceWriter,
    mode: FakeTensorMode,
    *contexts: AbstractContextManager[Any],
) -> pytree.TreeSpec:
    """Call a model with fake tensors for its weights and inputs, and write the results.

    Returns the structure of the results.

    What the call changes in the model, and around it, is restored. Other threads must not use the model meanwhile.

    Args:
        model: the model.
        args: the arguments; those that are fake tensors already are passed as they are.
        kwargs: the keyword arguments.
        writer: names the tensors.
        mode: handles the operators.
        contexts: are entered before the model is called.
    """
    registered = _members_of(model)
    weights, assigned = _weights_among(registered), list[str]()
    given = FakeInputs(mode)
    state = {name: given.make_weight(tensor) for name, tensor in weights.items()}
    for name, tensor in weights.items():
        copy_attributes(tensor, state[name])
        writer.name(state[name], f"weight {name}")
        writer.name(tensor, f"weight {name}")  # in another place than its attribute, as in a list
    leaves, in_spec = pytree.tree_flatten((args, dict(kwargs)))
    inputs = given.make_inputs(leaves, writer)

    def note(path: str, _: object, __: object, is_attribute: bool) -> None:
        assigned.append(path if is_attribute else f"{path} in _buffers")  # which an export refuses

    out_spec: pytree.TreeSpec
    with ExitStack() as stack:
        stack.callback(writer.clear)
        stack.enter_context(quiet())  # as an export
        changes = stack.enter_context(preserve_state(model, copies_tensors=False))
        caches = stack.enter_context(preserve_caches(model, changes))
        caches.restores_all = True  # but after a hit, as after an export
        stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled()))
        stack.enter_context(torch.nn.utils.stateless._reparametrize_module(model, {**state}, strict=True))
        traced = TracingContext(mode)
        stack.enter_context(tracing(traced))
        if "shape_env" not in vars(mode):  # a replay makes it for who asks, and ``tracing`` does at its end
            stack.callback(setattr, traced, "fake_mode", None)
        stack.enter_context(mode)
        for context in contexts:
            stack.enter_context(context)
        stack.enter_context(watch_assignments(model, note))
        with record_changed_arguments(model), export_context(model, writer.note_function) as called:

            def call() -> Any:
                args, kwargs = pytree.tree_unflatten(inputs, in_spec)  # classes can call operators, as in an export
                return called(*args, **kwargs)

            with writer.code.collect():
                leaves, out_spec = _call_deeper(_DEEPER, call)
        writer.code.require_complete()
        if assigned:
            writer.lines.append(["assigned", *assigned])
        members = _members_of(model)
        if _names_among(members) != _names_among(registered):
            raise NotComparableError("forward registers a parameter, a buffer or a module")
        with torch.no_grad():
            for name, tensor in _weights_among(members).items():  # a buffer that was assigned: torch.export copies it
                if tensor is not state[name]:
                    torch.ops.aten.copy_.default(state[name], tensor)
        writer.finish(out_spec, leaves)
        caches.restores_all = not writer.is_hit
    return out_spec


def _call_deeper(frames: int, function: Callable[[], Any]) -> Any:
    """Call a function below this many further frames, so that recursion fails where it fails in an export."""
    return _call_deeper(frames - 1, function) if frames else function()


def describe_structure(spec: pytree.TreeSpec) -> Json:
    """Describe a pytree: None for a leaf, and a node with its class and its context.

    Raises:
        NotComparableError: a context has no stable text.
    """
    if spec.is_leaf():
        return None
    kind = f"{spec.type.__module__}.{spec.type.__qualname__}"
    parts = spec.children() if callable(spec.children) else spec.children
    return [kind, _context(spec.context), *map(describe_structure, parts)]


def _context(context: Any) -> Json:
    kind = type(context)
    if isinstance(context, type):
        return ["type", context.__module__, context.__qualname__]
    if isinstance(context, (list, tuple)):
        return [kind.__qualname__, *map(_context, context)]
    if isinstance(context, dict):
        return [kind.__qualname__, *([_context(key), _context(value)] for key, value in context.items())]
    text = repr(context)
    if " at 0x" in text or kind in {set, frozenset}:
        raise NotComparableError(f"a {kind.__qualname__} in the structure of arguments or results has no stable text")
    return [f"{kind.__module__}.{kind.__qualname__}", text]


class FakeInputs:
    """Makes fake tensors like given ones: in the same layout, with gradients, and sharing memory like those."""

    def __init__(self, mode: FakeTensorMode) -> None:
        """Make tensors for a mode."""
        self._fakes = Fakes(mode)
        self._memories: dict[int, torch.UntypedStorage] = {}
        self._weights: dict[int, torch.Tensor] = {}

    def make(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor like a given one, or that one if it is fake."""
        if isinstance(tensor, FakeTensor):
            return tensor
        memory = tensor.untyped_storage()
        if memory._cdata not in self._memories:
            self._memories[memory._cdata] = torch.UntypedStorage(memory.nbytes(), device="meta")  # type: ignore[no-untyped-call]
        place = self._memories[memory._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
        on_meta: torch.Tensor = torch.empty(0, dtype=tensor.dtype, device="meta").set_(*place)
        made = self._fakes.wrap(on_meta.requires_grad_(tensor.requires_grad), tensor.device)
        for name in ("_is_buffer", "persistent"):
            if hasattr(tensor, name):
                setattr(made, name, getattr(tensor, name))
        if isinstance(tensor, torch.nn.Parameter):
            made._is_param = True
        if tensor.is_leaf and tensor.grad is not None:
            made.grad = self.make(tensor.grad)
        _set_version(made, 0)  # as the inputs of an export have
        return made

    def make_weight(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake tensor like a weight: for one weight always the same."""
        if id(tensor) not in self._weights:
            self._weights[id(tensor)] = self.make(tensor)
        return self._weights[id(tensor)]

    def make_inputs(self, leaves: Iterable[Any], writer: TraceWriter) -> list[Any]:
        """Return the leaves of arguments with fake tensors, which are named by their places."""
        made = [self.make(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        for place, leaf in enumerate(made):
            if isinstance(leaf, torch.Tensor):
                writer.name(leaf, f"input {place}")
        return made


def _set_version(tensor: torch.Tensor, version: int) -> None:
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def own_arguments(weights: Iterable[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return arguments without views, and without tensors that share memory with a weight or another argument.

    torch.export treats each as an input of its own (``example_arguments`` copies them first). The tensors in their
    place have the same layout, but not their values, which no trace has.
    """
    taken = {tensor.untyped_storage()._cdata for tensor in weights if tensor.layout == torch.strided}

    def own(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.layout != torch.strided:
            return leaf
        is_own = leaf.untyped_storage()._cdata not in taken and (leaf.is_inference() or leaf._base is None)
        taken.add(leaf.untyped_storage()._cdata)
        if is_own:
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)

    found: tuple[Any, Any] = pytree.tree_map_only(torch.Tensor, own, (args, dict(kwargs)))
    return found


def is_symbolic(trace: Trace) -> bool:
    """Return whether a trace has terms of symbols in place of sizes."""
    return bool(trace) and trace[-1][0] == "sizes"


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and then the buffers of a model; one with several names has all of them."""
    return _weights_among(_members_of(model))


_Member = tuple[str, str, "torch.Tensor | None"]
"""``module``, ``parameter`` or ``buffer``, the name, and the tensor, if it is one."""


def _members_of(model: torch.nn.Module) -> list[_Member]:
    """Return the modules, parameters and buffers of a model, by all of their names."""
    members: list[_Member] = []
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        members.append(("module", path, None))
        members += [("parameter", prefix + name, tensor) for name, tensor in module._parameters.items()]
        members += [("buffer", prefix + name, tensor) for name, tensor in module._buffers.items()]
    return members


def _weights_among(members: Iterable[_Member]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for table in ("parameter", "buffer"):
        found |= {name: tensor for kind, name, tensor in members if kind == table and tensor is not None}
    return found


def _names_among(members: Iterable[_Member]) -> list[tuple[str, str, bool]]:
    return [(kind, name, tensor is None) for kind, name, tensor in members]

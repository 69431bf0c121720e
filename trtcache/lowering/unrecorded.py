"""What ``forward`` does that ``torch.export`` does not record, though it succeeds.

torch.export writes the new value of a buffer of the model itself back at the end of the program. It does so by the
place of the buffer among those of the model, and chooses another one, or an input of the call, if a buffer is None, is
removed, or is created in ``forward``. It loses what is assigned to a buffer of a submodule or to a parameter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import _trace as torch_trace
from torch.export.graph_signature import InputKind
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.overrides import TorchFunctionMode

from trtcache.errors import ExportError
from trtcache.lowering import patch_attributes
from trtcache.lowering.forward_hooks import watch_assignments
from trtcache.lowering.operators import code_owner
from trtcache.lowering.symbols import sizes_differ

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.lowering.unguarded_sizes import Decisions


_REGISTERED = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}
_SAME_VALUES = frozenset(("to", "_to_copy", "detach", "alias", "contiguous", "clone", "lift_fresh_copy"))


class Assigned(IntEnum):
    """What assignments do to a buffer or parameter."""

    KEPT = 0
    CHANGED = 1
    CONVERTED = 2
    """It has another value, of another dtype or shape: at the next call, torch.export's has those of the first."""


@contextmanager
def record_assignments(model: torch.nn.Module) -> Iterator[dict[str, Assigned]]:
    """Record which of the model's buffers and parameters are assigned in the block, and what this does to them."""
    assigned: dict[str, Assigned] = {}

    def record(path: str, before: object, value: object, _: bool) -> None:
        assigned[path] = max(assigned.get(path, Assigned.KEPT), _judge(before, value))

    with watch_assignments(model, record):
        yield assigned


def reject_lost_assignments(program: ExportedProgram, assigned: Mapping[str, Assigned], label: str) -> None:
    """Reject a program that does not have an assignment to a buffer or parameter as the model's code has it.

    A buffer of a submodule is only rejected if the program reads the value from before the call.

    Raises:
        ExportError: there is such an assignment; the message names the buffer.
    """
    placeholders = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    weights = {str(spec.target): (node, spec.kind) for node, spec in placeholders if spec.kind in _REGISTERED}
    for name, what in assigned.items():
        is_changed = what is not Assigned.KEPT
        node, kind = weights.get(name, (None, InputKind.BUFFER))
        if "." not in name and kind is InputKind.BUFFER:
            users = node.users if node is not None else ()
            is_written = any(one.target is torch.ops.aten.copy_.default and one.args[0] is node for one in users)
            is_lost = not is_written or (is_changed and _is_returned(program, node)) or what is Assigned.CONVERTED
        else:
            is_lost = is_changed and node is not None and bool(node.users)
        if is_lost:
            remedy = "torch.export does not keep this; create it in __init__ and write to it in place (copy_)"
            value = " a value of another dtype or shape" if what is Assigned.CONVERTED else ""
            raise ExportError(label, f"forward assigns {_REGISTERED[kind]} {name}{value}, and {remedy}")


def _judge(before: object, value: object) -> Assigned:
    origin = _origin(before)
    # The old value, on another device or of another dtype, or its beginning.
    if before is value or (origin is not None and origin is _origin(value)):
        return Assigned.KEPT
    if not isinstance(before, torch.Tensor) or not isinstance(value, torch.Tensor):
        return Assigned.CHANGED
    is_converted = before.dtype != value.dtype or sizes_differ(before.shape, value.shape)
    return Assigned.CONVERTED if is_converted else Assigned.CHANGED


def _origin(value: Any) -> Any:
    """Return the node of a tensor that is being traced, or the one whose values it has."""
    mode = get_proxy_mode()
    if mode is None or not isinstance(value, torch.Tensor):
        return None
    tensor = value.from_functional() if isinstance(value, FunctionalTensor) else value
    slot = get_proxy_slot(tensor, mode.tracer, None)
    node: Any = None if slot is None else slot.proxy.node
    while isinstance(node, fx.Node) and isinstance(node.target, torch._ops.OpOverload):
        name = node.target._schema.name.removeprefix("aten::")
        is_beginning = name == "slice" and node.args[2:3] in {(), (0,), (None,)} and len(node.args) < 5
        if name not in _SAME_VALUES and not is_beginning:
            break
        node = node.args[0]
    return node


def _is_returned(program: ExportedProgram, weight: fx.Node | None) -> bool:
    """Return whether a result shares memory with a buffer, whose new value it would then have."""
    for result in program.graph.output_node().all_input_nodes:
        node: Any = result
        while isinstance(node, fx.Node) and isinstance(node.target, torch._ops.OpOverload):
            if not any(one.alias_info is not None for one in node.target._schema.returns):
                break
            node = node.args[0]
        if node is weight:
            return True
    return False


_SET_DATA: Any = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # a property, in torch's types a tensor


@contextmanager
def reject_unrecorded(label: str, decisions: Decisions) -> Iterator[None]:
    """Reject a model whose ``forward`` does in the block what ``torch.export`` does not record.

    A mode for functions of torch is entered where ``torch.export`` enters its own, and records decisions on layouts as
    well. (In the whole block it would also see those that torch calls to make the weights fake, as many again.)

    An operator that another thread calls is lost. An error of torch's that ``forward`` catches may be one of the export
    alone, in which tensors have no values: the program would have the branch for errors. What is assigned to ``data``
    of a weight or an argument is lost.

    Raises:
        ExportError: it does.
    """
    calls, owner = _Calls(decisions), threading.get_ident()

    @contextmanager
    def enter() -> Iterator[None]:
        is_own = threading.get_ident() == owner  # the caller may export another model in another thread
        calls.is_entered |= is_own
        with calls if is_own else nullcontext(), _NonStrictTorchFunctionHandler():
            yield

    with _watch_threads() as elsewhere, patch_attributes(torch_trace, _NonStrictTorchFunctionHandler=enter):
        yield
    if not calls.is_entered:
        raise ExportError(label, f"trtcache does not know how torch {torch.__version__} exports; use an older torch")
    if elsewhere:
        why = "which torch.export does not see; call it in the thread of forward"
        raise ExportError(label, f"forward calls {elsewhere[0]} in another thread, {why}")
    if caught := calls.first_caught():
        why = "which a model with values may not raise; check before the call, or decide outside of forward"
        raise ExportError(label, f"forward catches an error of torch's {caught}, {why}")
    if calls.sets_data:
        why = "which torch.export does not record; write to the tensor in place (copy_)"
        raise ExportError(label, f"forward assigns data of a tensor, {why}")


class _Calls(TorchFunctionMode):
    """Note errors of functions of torch, and assignments of ``data``."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__()
        self._decisions = decisions
        self.is_entered = self.sets_data = False
        self._errors: list[tuple[str, BaseException]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _SET_DATA:
            self.sets_data = True
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self._errors.append((getattr(func, "__name__", repr(func)), error))
            raise
        return self._decisions.record_layout(func, args, kwargs, result)

    def first_caught(self) -> str:
        """Return the name of the first function whose error was caught by code that is not torch's, and the error."""
        for name, error in self._errors:
            caught_by = error.__traceback__  # begins with the frame that caught it
            if caught_by is None:
                continue
            if code_owner(caught_by.tb_frame.f_code.co_filename) not in {"python", "torch"}:
                return f"{name} ({type(error).__name__})"
        return ""


@contextmanager
def _watch_threads() -> Iterator[list[str]]:
    """Yield a list, to which operators on fake tensors are added that another thread calls: torch.export loses them."""
    owner, found = threading.get_ident(), list[str]()
    dispatch = vars(FakeTensor)["__torch_dispatch__"]

    def watch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != owner:
            found.append(str(func))
        return dispatch.__func__(cls, func, types, args, kwargs or {})

    with patch_attributes(FakeTensor, __torch_dispatch__=classmethod(watch)):
        yield found

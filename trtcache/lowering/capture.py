"""Capture of a model: its export, with all that its code changes restored."""

from __future__ import annotations

import importlib
import logging
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import fx
from torch.export.graph_signature import InputKind, InputSpec
from torch.nn import modules as nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from trtcache.errors import ExportError
from trtcache.lowering import patch_attributes
from trtcache.lowering.arguments import replace_inputs, whole_ranges
from trtcache.lowering.caches import preserve_caches
from trtcache.lowering.device_guard import keep_device_guard
from trtcache.lowering.forward_hooks import record_changed_arguments
from trtcache.lowering.model_state import preserve_state, quiet
from trtcache.lowering.operators import code_owner
from trtcache.lowering.random_states import keep_random_states, random_states
from trtcache.lowering.rewriting import covers_memory, identity_of, kind_of
from trtcache.lowering.trial_runs import layout_dependent_inputs, written_inputs
from trtcache.lowering.unguarded_sizes import record_decisions
from trtcache.lowering.unrecorded import record_assignments, reject_lost_assignments, reject_unrecorded
from trtcache.weights.arrays import can_overlap_itself
from trtcache.weights.slots import is_fake, layout, storage_id

if TYPE_CHECKING:
    from torch.export import ExportedProgram


keep_device_guard()

log = logging.getLogger("trtcache.lowering")

_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_ADVICE = ("For ", "If you suspect", "Caused by:", "consider using", "The error above", "The following call", "  File ")
_STATE_IGNORED = "an engine answers each call as the first one; use a buffer, and write to it in place"
_ARGUMENT_IGNORED = "an engine leaves the caller's as they are; return what is new instead"
_LONGEST_MESSAGE, _LONGEST_LINE = 600, 160
NO_RESHAPE = "use t() or reshape() instead of t_() or resize_()"
_REMEDIES = {
    "Cache'> in output": "pass use_cache=False: torch.export cannot return this cache",
    "Constraints violated": "or pass torch.export.Dim.AUTO for this size: it stays dynamic if it can",
    "Node copy__default": "forward assigns an input or a buffer to a buffer: write to it in place (copy_)",
    "fake tensor in the exported program constant's list": "forward assigns .data: write to it in place (copy_)",
    "This pytree flattening function": "pass use_cache=False: torch.export cannot return this cache",
    "expected sympy.Symbol": "torch cannot decompose a program from a file with a derived dimension (4 * q): compile "
    "the model itself, with dynamic_shapes",
    "object has no attribute 'meta'": "it returns an object that is no tensor, number, text or None; return its parts",
    "list assignment index": "dynamic_shapes has a dimension that its input does not have",
    "nference tensor": "compile under torch.inference_mode, or clone tensors that were created under it",
    " not in range [": "the size of an example input is outside of the range of its Dim",
    "expected compiled_fn to be GraphModule": "forward changes a buffer that has another name, or shares memory with "
    "another one: register it once, and take views of it in forward",
    "does not yet handle": "forward changes buffers that share memory in a way that torch does not know: register one "
    "of them, and take views of it in forward",
    "num_mutated_inp_runtime_indices": f"forward changes the shape of an input in place: {NO_RESHAPE}",
    "invalid syntax": "torch.export cannot write random_() with bounds: use torch.randint",
    "data-dependent expression": "it branches on values of tensors: use torch.where, or run that part outside of it",
}
"""What torch's message contains -> what to do."""


Model = torch.nn.Module
"""Models that can be exported."""


def export(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Export a model, with example inputs in layouts that other inputs can be copied into.

    Raises:
        ExportError: ``torch.export`` cannot trace the model, or the inputs do not fit it.
    """
    label = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise ExportError(label, "it is TorchScript; give the torch.nn.Module that it was scripted from")
    if lazy := [name for name, one in (*model.named_parameters(), *model.named_buffers()) if is_lazy(one)]:
        raise ExportError(label, f"{lazy[0]} of a lazy module has no shape yet; call the model once first")
    _reject_equal_modules(model, label)
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    _reject_layouts(weights, label)
    _reject_classes(weights, label)
    _reject_layouts({f"argument {place}": one for place, one in enumerate(pytree.tree_leaves((args, kwargs)))}, label)
    args, kwargs, shapes = replace_inputs(model, args, kwargs, dynamic_shapes)
    (args, kwargs), gapped = example_arguments(model, (args, kwargs))
    return _trace(model, args, kwargs, shapes, label, gapped, is_whole=shapes is not dynamic_shapes)


def _trace(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    shapes: Any,
    label: str,
    gapped: Mapping[int, torch.Tensor],
    *,
    is_whole: bool,
) -> ExportedProgram:
    """Export a model; once more, with the layouts of ``gapped``, if what it writes depends on them.

    ``gapped`` is what ``example_arguments`` returns.

    ``reshape`` and ``contiguous`` may return a copy of a tensor with gaps. With dynamic sizes the inputs stay
    contiguous, as torch then gives them strides that no call determines.
    """
    random_before, reset_random = random_states(), keep_random_states()
    try:
        with (
            record_changed_arguments(model) as changed_arguments,
            preserve_state(model) as changes,
            preserve_caches(model, changes) as caches,
            quiet(),
            whole_ranges() if is_whole else nullcontext(),
            lstm_states_in_shape(),
            preserved_hooks(),
            record_decisions() as decisions,
            record_assignments(model) as assigned,
            reject_unrecorded(label, decisions),
        ):
            program: ExportedProgram = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(label, f"torch.export: {explain_failure(error)}") from error
    if gapped and not program.range_constraints:
        leaves = pytree.tree_leaves(program.example_inputs)
        matter = written_inputs(program) | layout_dependent_inputs(program)
        own = {id(leaves[leaf]) for leaf in matter} & gapped.keys()
        if own:
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda one: gapped[id(one)] if id(one) in own else one, (args, kwargs)
            )
            return _trace(model, args, kwargs, shapes, label, {}, is_whole=is_whole)
    if any(map(_is_of_functorch, program.constants.values())):
        raise ExportError(label, "torch.export loses an input of torch.func.grad, jacrev or vmap; compute it otherwise")
    reject_lost_assignments(program, assigned, label)
    constants = {id(one) for one in program.constants.values()}
    replaced = {id(one): name for name, one in (*changes.tensors, *caches.replaced) if id(one) in constants}
    for what, names, why in (
        ("changes the number", [*dict.fromkeys((*changes.numbers, *caches.numbers))], _STATE_IGNORED),
        ("replaces the tensor", [*replaced.values()], _STATE_IGNORED),
        ("changes the list or dict in", changed_arguments, _ARGUMENT_IGNORED),
    ):
        if names:
            log.warning("%s: forward %s %s: %s", label, what, ", ".join(names[:3]), why)
    if training := [name or label for name, one in model.named_modules() if _depends_on_training(one) and one.training]:
        what = ", ".join(training[:3])
        log.warning(
            "%s: the engine is in training mode, as %s: call eval() on the model before compiling it", label, what
        )
    if changes.has_drawn or caches.has_drawn or random_states() != random_before:
        why = "an engine has the numbers of the export; use operators of torch, and set seeds outside of forward"
        log.warning("%s: forward seeds a generator, or draws from Python's or NumPy's: %s", label, why)
        reset_random()
    results = {f"result {one.name}": one.meta.get("val") for one in program.graph.output_node().all_input_nodes}
    _reject_layouts(results, label, "return")
    _replace_weight_constants(program)
    decisions.add_to(program)
    program._has_whole_ranges = is_whole  # type: ignore[attr-defined]  # our attribute, for decompose
    return program


def _reject_equal_modules(model: torch.nn.Module, label: str) -> None:
    """Reject a model with modules that compare equal: torch.export takes one for the other, with its weights.

    Raises:
        ExportError: there are two.
    """
    found: dict[torch.nn.Module, tuple[str, torch.nn.Module]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        try:
            first, other = found.setdefault(module, (path, module))
        except TypeError:  # it has no hash: torch's error says so
            return
        if other is not module:
            why = "torch.export takes one for the other: let their class not define __eq__"
            raise ExportError(label, f"the modules {first} and {path} are equal, and {why}")


def _reject_layouts(values: Mapping[str, object], label: str, remedy: str = "pass") -> None:
    """Reject tensors that are sparse, or of another layout that is not a pointer with strides.

    Raises:
        ExportError: there is one.
    """
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            why = f"{name} has the layout {value.layout}; {remedy} a dense tensor, as to_dense() returns"
            raise ExportError(label, why)


def _reject_classes(weights: Mapping[str, Any], label: str) -> None:
    """Reject parameters and buffers of a derived class, unless torch.export takes them apart into plain tensors.

    Without ``strict``, a plain fake tensor takes their place: it has no methods, attributes or class of theirs.

    Raises:
        ExportError: there is one.
    """
    for name, weight in weights.items():
        if type(weight) not in _CLASSES and not is_fake(weight) and not is_traceable_wrapper_subclass(weight):
            why = "torch.export takes it for a plain tensor, and leaves out what its class does"
            remedy = "use torch.nn.Parameter or torch.Tensor, and call functions in forward"
            raise ExportError(label, f"{name} is of class {type(weight).__qualname__}: {why}; {remedy}")


def _depends_on_training(module: torch.nn.Module) -> bool:
    """Return whether a module of torch computes something else in training mode."""
    if isinstance(module, nn.dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, (nn.rnn.RNNBase, nn.activation.MultiheadAttention)):
        return module.dropout > 0
    return isinstance(module, nn.batchnorm._NormBase) and module.track_running_stats


def _is_of_functorch(value: object) -> bool:
    """Return whether a constant is a traced input of a transform of ``torch.func``, which has no values."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def _replace_weight_constants(program: ExportedProgram) -> None:
    """Replace constants of an exported program by the parameters and buffers whose memory they share, in place.

    Without ``strict``, torch.export knows a parameter or buffer only by the name that its module registered. The same
    tensor in another place, as the buffers of a ``StaticCache`` in a list of layers, becomes a constant as well: a
    refit would not reach it, and torch cannot decompose a program that writes to it.

    Raises:
        ExportError: a constant is a view of a weight in a way that no operator expresses, or of one that is reassigned.
    """
    graph, signature = program.graph, program.graph_signature
    nodes = dict(zip(graph.find_nodes(op="placeholder"), list(signature.input_specs), strict=True))
    weights = _weights_by_memory(program, nodes)
    reassigned = {node.args[0] for node in graph.nodes if node.target is torch.ops.aten.copy_.default}
    first = next(node for node in graph.nodes if node.op != "placeholder")
    is_changed = False
    for node, spec in nodes.items():
        constant = program.constants.get(str(spec.target)) if spec.kind is InputKind.CONSTANT_TENSOR else None
        if not _has_memory(constant) or storage_id(constant) not in weights:
            continue
        identity = identity_of(constant)
        # Weights of the state_dict first: a refit sets those. The same tensor before one that it is a part of.
        shared = sorted(
            (one for one in weights[storage_id(constant)] if _overlap(constant, one[2])),
            key=lambda one: (identity_of(one[2]) != identity, one[1].persistent is False, -one[2].numel()),
        )
        if not shared:
            continue
        owner, owner_spec, weight = shared[0]
        is_same = identity_of(weight) == identity
        if not is_same and all(one[1].persistent is False for one in shared):
            continue  # a refit does not set these buffers, and torch rejects a constant that is written to
        what = f"its constant {spec.target} shares memory with {owner_spec.target}"
        if owner in reassigned:
            raise ExportError("the program", f"{what}, which forward assigns; write to it in place (copy_) everywhere")
        if not is_same:  # a part of the weight
            if kind_of(weight) != kind_of(constant) or not weight.is_contiguous() or not covers_memory(weight):
                raise ExportError("the program", f"{what}; create this view in forward")
            place = list(constant.shape), list(constant.stride()), constant.storage_offset()
            with graph.inserting_before(first):
                view = graph.call_function(torch.ops.aten.as_strided.default, (owner, *place))
            with owner.meta["val"].fake_mode:
                view.meta["val"] = owner.meta["val"].as_strided(*place)
            owner = view
        node.replace_all_uses_with(owner)
        graph.erase_node(node)
        signature.input_specs.remove(spec)
        program.constants.pop(str(spec.target), None)
        is_changed = True
    if is_changed:
        program.graph_module.recompile()


def _weights_by_memory(
    program: ExportedProgram, nodes: Mapping[fx.Node, InputSpec]
) -> dict[int, list[tuple[fx.Node, InputSpec, torch.Tensor]]]:
    tensors = {**program.constants, **program.state_dict}
    weights: dict[int, list[tuple[fx.Node, InputSpec, torch.Tensor]]] = {}
    for node, spec in nodes.items():
        tensor = tensors.get(str(spec.target)) if spec.kind in {InputKind.PARAMETER, InputKind.BUFFER} else None
        if _has_memory(tensor):
            weights.setdefault(storage_id(tensor), []).append((node, spec, tensor))
    return weights


def _has_memory(tensor: object) -> TypeGuard[torch.Tensor]:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not is_fake(tensor)


def _span(tensor: torch.Tensor) -> range:
    """Return the bytes of its memory from a tensor's first element to its last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset()
    return range(first * tensor.element_size(), (first + last + 1) * tensor.element_size() if tensor.numel() else 0)


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    left, right = _span(one), _span(other)
    return bool(left) and bool(right) and left.start < right.stop and right.start < left.stop


@contextmanager
def preserved_hooks() -> Iterator[None]:
    """Remove the hook on the buffers of all modules that a failed ``torch.export`` leaves (torch 2.11)."""
    hooks: dict[int, Any] = torch.nn.modules.module._global_buffer_registration_hooks
    before = set(hooks)
    try:
        yield
    finally:
        for number in set(hooks) - before:
            del hooks[number]


@contextmanager
def lstm_states_in_shape() -> Iterator[None]:
    """Give the last states of an LSTM the shape of its first ones in the block.

    torch 2.11 traces states of shape (layers, 1, batch, size): its decomposition removes the wrong dimension.
    """
    decompositions: Any = importlib.import_module("torch._decomp.decompositions")
    original = decompositions.one_layer_lstm

    def one_layer_lstm(inp: Any, hidden: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        out, states = original(inp, hidden, *args, **kwargs)
        pairs = zip(states, hidden, strict=True)
        return out, tuple(one if one.dim() == first.dim() else one.reshape(first.shape) for one, first in pairs)

    with patch_attributes(decompositions, one_layer_lstm=one_layer_lstm):
        yield


def example_arguments(model: torch.nn.Module, arguments: Any) -> tuple[Any, dict[int, torch.Tensor]]:
    """Return example arguments in layouts that others can be copied into, each with its own memory.

    torch.export treats a tensor that is passed twice, or that is also a weight, as one: the program would then ignore
    the second argument of a later call. Tensors with gaps become contiguous; they are also returned with their gaps, by
    the ``id`` of the contiguous one.
    """
    gapped: dict[int, torch.Tensor] = {}

    def memories(module: torch.nn.Module) -> set[int]:
        return {storage_id(one) for one in (*module.parameters(), *module.buffers()) if one.layout == torch.strided}

    taken = memories(model)

    def example(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided:
            return tensor
        kept = layout(tuple(tensor.shape), tensor.stride()) == tensor.stride()
        made = tensor if kept else tensor.contiguous()
        if storage_id(made) in taken or made._base is not None:  # guards of a view are about its base's sizes, too
            made = made.detach().clone()
        taken.add(storage_id(made))
        if not (tensor.is_contiguous() or kept or can_overlap_itself(tensor.shape, tensor.stride())):
            gaps = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            gapped[id(made)] = gaps.copy_(tensor.detach())
        return made

    examples = pytree.tree_map_only(torch.Tensor, example, arguments)
    for leaf in pytree.tree_leaves(examples):
        if isinstance(leaf, torch.nn.Module):
            if memories(leaf) & taken:
                why = f"an argument of class {type(leaf).__name__} shares a tensor with the model or another argument"
                remedy = "pass a copy of it (copy.deepcopy), or use it as an attribute"
                raise ExportError(type(model).__name__, f"{why}; {remedy}")
            taken |= memories(leaf)
    return examples, gapped


def explain_failure(error: Exception) -> str:
    """Return torch's message without frames of C++ and advice on logging, the line of the model, and a remedy."""
    message = str(error).partition("\nException raised from ")[0]
    kept = [line for line in message.splitlines() if line.strip() and not line.startswith(_ADVICE)]
    text = f"{type(error).__name__}: {' '.join(kept) if len(kept) < 3 else chr(10).join(kept)}".strip()
    text = text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} ..."
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if code_owner(frame.filename) == "model"]
    if frames:
        line = textwrap.shorten(frames[-1].line or "", _LONGEST_LINE, placeholder=" ...")
        text += f" (at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {line})"
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in str(error)), "")
    return f"{text}; {remedy}" if remedy else text


def reject_fake_weights(program: ExportedProgram, label: str) -> None:
    """Reject a program whose weights have no values.

    Raises:
        ExportError: there are such weights.
    """
    tensors = {**program.constants, **program.state_dict}
    if fake := [name for name, one in tensors.items() if isinstance(one, torch.Tensor) and is_fake(one)]:
        raise missing_values_error(label, fake)


def missing_values_error(label: str, names: list[str]) -> ExportError:
    """Return the error for weights or constants that are fake tensors."""
    found = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    verb, noun = ("are fake tensors", "their") if len(names) > 1 else ("is a fake tensor", "its")
    why = f"{found} {verb}, created under FakeTensorMode without {noun} values"
    remedy = "create the model outside FakeTensorMode, or load its weights first: load_state_dict(..., assign=True)"
    return ExportError(label, f"{why}; {remedy}")

"""Capture of a model: export, decompositions, and one flat graph with marked inputs, weights and outputs."""

from __future__ import annotations

import importlib
import logging
import math
import operator
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError
from trtcache.lowering.arguments import assume_sizes_of_two, configurations, has_classes, replace_inputs, whole_ranges
from trtcache.lowering.caches import preserve_caches
from trtcache.lowering.composite_operators import quick_overrides
from trtcache.lowering.device_guard import keep_device_guard
from trtcache.lowering.interface import Content
from trtcache.lowering.model_state import preserve_state, quiet, random_states, record_changed_arguments
from trtcache.lowering.operators import all_nodes, is_standard_library
from trtcache.lowering.rewrites.constants import new_constant
from trtcache.lowering.rewriting import (
    accepts_any_layout,
    arguments,
    covers_memory,
    draws_random_numbers,
    expression,
    group_tied,
    identity_of,
    is_contiguous,
    is_mutating,
    is_static,
    kind_of,
    same_sizes,
    storage_id,
    tensor_of,
)
from trtcache.lowering.symbols import InputSizes, as_tensor, sizes_differ
from trtcache.lowering.trial_runs import layout_dependent_inputs, written_inputs
from trtcache.lowering.unguarded_sizes import record_decisions
from trtcache.lowering.unrecorded import record_assignments, reject_lost_assignments, reject_unrecorded
from trtcache.weights.arrays import can_overlap_itself
from trtcache.weights.slots import is_fake, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from torch.export import ExportedProgram


keep_device_guard()

log = logging.getLogger("trtcache.lowering")

_NUMBERS = (SymIntArgument, SymFloatArgument, SymBoolArgument)
_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_NO_OP_USER = torch.ops.aten._assert_tensor_metadata.default
_DROPOUTS = {
    getattr(torch.ops.aten, name).default
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
}
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
_SHUFFLES = {torch.ops.aten.channel_shuffle.default, torch.ops.aten.native_channel_shuffle.default}
_NEED_WEIGHTS = 10  # index of this argument of ``_native_multi_head_attention``
_ADVICE = ("For ", "If you suspect", "Caused by:", "consider using", "The error above", "The following call", "  File ")
_STATE_IGNORED = "an engine answers each call as the first one; use a buffer, and write to it in place"
_ARGUMENT_IGNORED = "an engine leaves the caller's as they are; return what is new instead"
_NO_RESHAPE = "use t() or reshape() instead of t_() or resize_()"
_REMEDIES = {
    "Cache'> in output": "pass use_cache=False: torch.export cannot return this cache",
    "Constraints violated": "or pass torch.export.Dim.AUTO for this size: it stays dynamic if it can",
    "Node copy__default": "forward assigns an input or a buffer to a buffer: write to it in place (copy_)",
    "fake tensor in the exported program constant's list": "forward assigns .data: write to it in place (copy_)",
    "This pytree flattening function": "pass use_cache=False: torch.export cannot return this cache",
    "expected sympy.Symbol": "torch cannot decompose a program from a file with a derived dimension (4 * q): compile "
    "the model itself, with dynamic_shapes",
    "list assignment index": "dynamic_shapes has a dimension that its input does not have",
    "nference tensor": "compile under torch.inference_mode, or clone tensors that were created under it",
    " not in range [": "the size of an example input is outside of the range of its Dim",
    "expected compiled_fn to be GraphModule": "forward changes a buffer that has another name, or shares memory with "
    "another one: register it once, and take views of it in forward",
    "does not yet handle": "forward changes buffers that share memory in a way that torch does not know: register one "
    "of them, and take views of it in forward",
    "num_mutated_inp_runtime_indices": f"forward changes the shape of an input in place: {_NO_RESHAPE}",
    "invalid syntax": "torch.export cannot write random_() with bounds: use torch.randint",
    "data-dependent expression": "it branches on values of tensors: use torch.where, or run that part outside of it",
}
"""What torch's message contains -> what to do."""
_TORCH, _OURS = Path(torch.__file__).parent, Path(__file__).parents[1]

_THRESHOLDS = frozenset({torch.ops.aten.threshold.default, torch.ops.aten.threshold_.default})

Model = torch.nn.Module
"""Models that can be exported."""


@frozen_dataclass
class Role:
    """The role of one output of a lowered graph.

    Kinds are

    * ``result``: a tensor of the model's output;
    * ``value``: a number, text or None, in ``value``; the graph has None in its place;
    * ``size``: a number that is an expression over sizes, in ``value``; the graph has None in its place;
    * ``number``: a number, in a tensor of one element;
    * ``weight``: the new content of a weight, whose name is ``target``;
    * ``input``: the new content of an input, whose leaf is ``target``.

    ``layout`` is the memory order of a result's dimensions in the model, from the outermost to the innermost, or None
    if its memory has gaps or that depends on sizes. Passes may compute the result differently, but a caller can see its
    layout.
    """

    kind: str
    target: str | int | None = None
    value: object = None
    layout: tuple[int, ...] | None = None


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
    random_before = random_states()
    try:
        with (
            record_changed_arguments(model) as changed_arguments,
            preserve_state(model) as changes,
            preserve_caches(model, changes) as caches,
            quiet(),
            whole_ranges() if is_whole else nullcontext(),
            _lstm_states_in_shape(),
            _preserved_hooks(),
            record_decisions() as decisions,
            record_assignments(model) as assigned,
            reject_unrecorded(label),
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
        ("changes the number", changes.numbers, _STATE_IGNORED),
        ("replaces the tensor", [*replaced.values()], _STATE_IGNORED),
        ("changes the list or dict in", changed_arguments, _ARGUMENT_IGNORED),
    ):
        if names:
            log.warning("%s: forward %s %s: %s", label, what, ", ".join(names[:3]), why)
    if random_states() != random_before:
        why = "an engine has the numbers of the export; use operators of torch, and set seeds outside of forward"
        log.warning("%s: forward seeds a generator, or draws from Python's or NumPy's: %s", label, why)
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


def _reject_layouts(values: Mapping[str, object], label: str) -> None:
    """Reject tensors that are sparse, or of another layout that is not a pointer with strides.

    Raises:
        ExportError: there is one.
    """
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            raise ExportError(
                label, f"{name} has the layout {value.layout}; pass a dense tensor, as to_dense() returns"
            )


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


def decompose(
    program: ExportedProgram, keep: Collection[str], stays: Callable[[object], bool] = lambda _: False
) -> ExportedProgram:
    """Return the program in core ATen operators, without mutation; operators in ``keep`` are not decomposed.

    Args:
        program: an exported program.
        keep: names of operator packets with better code in the backend, ``aten.scaled_dot_product_attention``.
        stays: returns whether another operator is not decomposed.

    Raises:
        ExportError: an operator cannot be decomposed or made functional.
    """
    # torch runs a program's guards as Python code when it traces the program again: ``max(a, b) == 4`` then asks which
    # is larger, ``or`` which side is true, and the program would be specialised on the example's answer.
    guards, program._guards_code = program._guards_code, []
    try:
        assume_sizes_of_two(program)
        whole = getattr(program, "_has_whole_ranges", False)
        with quick_overrides():
            table = _decompositions(program, keep, stays)  # of the program as it is: what follows changes its graph
            with (
                quiet(),
                _without_classes(program) as signature,
                whole_ranges() if whole else nullcontext(),
                _lstm_states_in_shape(),
                _copies_that_convert(),
                _keep_unused_draws(program.graph),
                _integer_thresholds(program.graph),
                _without_dropout(program.graph_module),
                _with_copies(program.graph),
            ):
                decomposed = _without_tokens(program.run_decompositions(table))
        decomposed.module_call_graph[0].signature, decomposed._example_inputs = signature, program.example_inputs
    except ExportError:
        raise
    except Exception as error:
        raise ExportError("the program", f"decompositions: {explain_failure(error)}") from error
    finally:
        program._guards_code = guards
    if not any(map(_has_misshapen_states, all_nodes(program.graph_module))):
        _compare_results(program, decomposed)
    return decomposed


def _decompositions(program: ExportedProgram, keep: Collection[str], stays: Callable[[object], bool]) -> Any:
    """Return torch's table of decompositions without those of operators that are kept."""
    # The decomposition of a random operator may draw other numbers: `bernoulli` is not `rand() < p` on a GPU.
    drawing = {node.target for node in program.graph.nodes if draws_random_numbers(node)}
    table = torch.export.default_decompositions()
    for target in list(table):
        if str(target).rpartition(".")[0] in keep or stays(target) or target in drawing:
            del table[target]
    return table


@contextmanager
def _preserved_hooks() -> Iterator[None]:
    """Remove the hook on the buffers of all modules that a failed ``torch.export`` leaves (torch 2.11)."""
    hooks: dict[int, Any] = torch.nn.modules.module._global_buffer_registration_hooks
    before = set(hooks)
    try:
        yield
    finally:
        for number in set(hooks) - before:
            del hooks[number]


@contextmanager
def _lstm_states_in_shape() -> Iterator[None]:
    """Give the last states of an LSTM the shape of its first ones in the block.

    torch 2.11 traces states of shape (layers, 1, batch, size): its decomposition removes the wrong dimension.
    """
    decompositions: Any = importlib.import_module("torch._decomp.decompositions")
    original = decompositions.one_layer_lstm

    def one_layer_lstm(inp: Any, hidden: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        out, states = original(inp, hidden, *args, **kwargs)
        pairs = zip(states, hidden, strict=True)
        return out, tuple(one if one.dim() == first.dim() else one.reshape(first.shape) for one, first in pairs)

    decompositions.one_layer_lstm = one_layer_lstm
    try:
        yield
    finally:
        decompositions.one_layer_lstm = original


@contextmanager
def _copies_that_convert() -> Iterator[None]:
    """Let copies into a buffer convert and broadcast in the block.

    torch 2.13 replaces the copy in ``self.count.copy_(x.mean())`` by its source: later operators then read the value in
    the dtype and shape of the source, and the state alone is right.
    """
    module: Any = importlib.import_module("torch.export.exported_program")
    original = getattr(module, "_remove_unnecessary_copy_op_pass", None)
    if original is None:  # another version of torch; ``_compare_results`` finds such copies
        yield
        return

    def remove_copies(graph_module: fx.GraphModule, signature: Any) -> Any:
        changed = {**signature.buffers_to_mutate, **signature.parameters_to_mutate}
        with graph_module._set_replace_hook(signature.get_replace_hook()):
            for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy.default):
                if node.name in changed:
                    _convert_copy(node)
        return original(graph_module, signature)

    module._remove_unnecessary_copy_op_pass = remove_copies
    try:
        yield
    finally:
        module._remove_unnecessary_copy_op_pass = original


def _convert_copy(copy: fx.Node) -> None:
    """Replace a copy into a tensor by operators on its source, if that has another dtype, device, shape or layout."""
    aten: Any = torch.ops.aten
    source: Any = copy.args[1]
    before, after = source.meta["val"], copy.meta["val"]

    def call(target: Any, *arguments: Any, **options: Any) -> None:
        nonlocal source, before
        before = target(before, *arguments, **options)
        source = copy.graph.call_function(target, (source, *arguments), options)
        source.meta = {**copy.meta, "val": before}

    with copy.graph.inserting_before(copy):
        if (before.dtype, before.device) != (after.dtype, after.device):
            call(aten._to_copy.default, dtype=after.dtype, device=after.device)
        if sizes_differ(before.shape, after.shape):
            call(aten.expand.default, [*after.shape])
        if sizes_differ(before.stride(), after.stride()):
            formats = (one for one in _FORMATS if after.is_contiguous(memory_format=one))
            call(aten.clone.default, memory_format=next(formats, torch.preserve_format))
    if source is not copy.args[1]:
        copy.replace_all_uses_with(source)
        copy.graph.erase_node(copy)


def _has_misshapen_states(node: fx.Node) -> bool:
    """Return whether a node is an LSTM as torch 2.11 exports it: what follows has shapes that no call has."""
    return node.target is torch.ops.aten.lstm.input and node.meta["val"][1].dim() == 4


@contextmanager
def _keep_unused_draws(graph: fx.Graph) -> Iterator[None]:
    """Add a user to each unused draw of random numbers in the block; a pass removes it.

    Decompositions remove what nothing uses, and the draws after it would then be other numbers. Nothing is added if no
    result depends on a draw.
    """
    used = set(_nodes_used(graph))
    found = [node for node in graph.nodes if draws_random_numbers(node)]
    added = []
    if any(node in used or is_mutating(node) for node in found):
        for node in found:
            if node not in used:
                several = not isinstance(node.meta["val"], torch.Tensor)
                with graph.inserting_after(node):
                    value = graph.call_function(operator.getitem, (node, 0)) if several else node
                with graph.inserting_after(value):
                    added += [graph.call_function(_NO_OP_USER, (value,)), *([value] if several else [])]
    try:
        yield
    finally:
        for node in added:
            graph.erase_node(node)


@contextmanager
def _integer_thresholds(graph: fx.Graph) -> Iterator[None]:
    """Let ``threshold`` of integers have integers in the block, as its kernel converts its numbers.

    Its decomposition computes with floats, which have fewer digits (torch 2.13).
    """
    changed: list[tuple[fx.Node, Any]] = []
    for node in graph.nodes:
        if node.target in _THRESHOLDS and not (value := node.args[0].meta["val"].dtype).is_floating_point:
            numbers = [int(one) if isinstance(one, float) and value is not torch.bool else one for one in node.args[1:]]
            changed.append((node, node.args))
            node.args = (node.args[0], *numbers)
    try:
        yield
    finally:
        for node, args in changed:
            node.args = args


@contextmanager
def _without_dropout(graph_module: fx.GraphModule) -> Iterator[None]:
    """Let a dropout without effect be an alias of its input in the block, if a tensor is changed in place.

    It returns its input, so an in-place change affects both; decompositions make it another tensor (torch 2.13).
    """
    changed: list[tuple[fx.Node, Any, Any, Any]] = []
    nodes = all_nodes(graph_module)
    if any(map(is_mutating, nodes)):
        for node in nodes:
            if (source := _source_of_dropout(node)) is not None:
                changed.append((node, node.target, node.args, node.kwargs))
                node.target, node.args, node.kwargs = torch.ops.aten.alias.default, (source,), {}
    try:
        yield
    finally:
        for node, target, args, kwargs in changed:
            node.target, node.args, node.kwargs = target, args, kwargs


@contextmanager
def _with_copies(graph: fx.Graph) -> Iterator[None]:
    """In the block, copy the input of a ``channel_shuffle`` that keeps the order: its decomposition returns a view.

    Its kernel returns a copy, and so does that of ``native_dropout`` without effect, for which torch.export has already
    taken its input (torch 2.13).

    Raises:
        ExportError: the graph has such a ``native_dropout``, and changes a tensor in place.
    """
    dropouts = [node for node in graph.nodes if node.target is torch.ops.aten.native_dropout.default]
    if dropouts and any(map(is_mutating, graph.nodes)):
        for _, probability, train in map(arguments, dropouts):
            if not train or probability == 0:
                why = "torch.export takes native_dropout without effect for its input, and forward changes a tensor"
                raise ExportError("the program", f"{why} in place: use torch.nn.functional.dropout")
    copies = []
    for node in [node for node in graph.nodes if node.target in _SHUFFLES]:
        source, groups = arguments(node)
        if groups in (1, expression(source.meta["val"].shape[1])):
            with graph.inserting_before(node):
                copies.append((node, graph.call_function(torch.ops.aten.clone.default, (source,)), source))
            node.replace_input_with(source, copies[-1][1])
    try:
        yield
    finally:
        for node, copy, source in copies:
            node.replace_input_with(copy, source)
            graph.erase_node(copy)


def _source_of_dropout(node: fx.Node) -> fx.Node | None:
    """Return the tensor that a dropout without effect returns; None for other nodes."""
    if node.target not in _DROPOUTS:
        return None
    source, probability, train = arguments(node)
    return source if train is False or probability == 0 else None


def _nodes_used(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the nodes on which outputs and side effects depend, other than draws of random numbers."""
    seen: set[fx.Node] = set()
    stack = [
        node for node in graph.nodes if node.op == "output" or (node.is_impure() and not draws_random_numbers(node))
    ]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.all_input_nodes
            yield node


def _without_tokens(program: ExportedProgram) -> ExportedProgram:
    """Return a program without the tokens that keep checks of linear algebra in order, such as that of ``inverse``.

    The checks stay: they have no result, and an engine raises their errors.

    Raises:
        ExportError: another operator has such a token, as ``aten._print``.
    """
    if all(spec.kind is not InputKind.TOKEN for spec in program.graph_signature.input_specs):
        return program
    from torch._higher_order_ops.effects import with_effects
    from torch.export._remove_effect_tokens_pass import _remove_effect_tokens

    effects = {str(node.args[1]) for node in all_nodes(program.graph_module) if node.target is with_effects}
    if others := sorted(effects - {str(torch.ops.aten._linalg_check_errors.default)}):
        raise ExportError("the program", f"{others[0]} has an effect besides its results, which engines do not support")
    return _remove_effect_tokens(program)


def _compare_results(program: ExportedProgram, decomposed: ExportedProgram) -> None:
    """Reject a decomposition that changes results: that of ``multilabel_margin_loss`` adds a dimension.

    New contents of buffers have these buffers' dtypes and shapes, and those of inputs these inputs' shapes.
    """
    buffers = {**decomposed.constants, **decomposed.state_dict}
    inputs = {node.name: node.meta.get("val") for node in decomposed.graph.find_nodes(op="placeholder")}
    outputs: Any = decomposed.graph.output_node().args[0]
    for spec, node in zip(decomposed.graph_signature.output_specs, outputs, strict=True):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            if sizes_differ(inputs[str(spec.target)].shape, node.meta["val"].shape):
                raise ExportError("the program", f"forward changes the shape of {spec.target} in place: {_NO_RESHAPE}")
        elif spec.kind is OutputKind.BUFFER_MUTATION:
            buffer, content = buffers[str(spec.target)], node.meta["val"]
            if buffer.dtype != content.dtype or sizes_differ(buffer.shape, content.shape):
                raise ExportError("the program", f"torch's decompositions do not convert what {spec.target} gets")

    def results(one: ExportedProgram) -> list[torch.Tensor]:
        nodes: Any = one.graph.output_node().args[0]
        specs = zip(one.graph_signature.output_specs, nodes, strict=True)
        values = [getattr(node, "meta", {}).get("val") for spec, node in specs if spec.kind is OutputKind.USER_OUTPUT]
        return [value for value in values if isinstance(value, torch.Tensor)]

    for place, (before, after) in enumerate(zip(results(program), results(decomposed), strict=False)):
        if before.dtype != after.dtype or sizes_differ(before.shape, after.shape):
            found = f"{after.dtype} of shape {tuple(after.shape)}, not {before.dtype} of {tuple(before.shape)}"
            raise ExportError("the program", f"torch's decompositions make result {place} a tensor of {found}")


@contextmanager
def _without_classes(program: ExportedProgram) -> Iterator[Any]:
    """Replace the classes in the structures of a program's arguments and output by tuples of their leaves in the block.

    torch constructs and flattens objects of these classes again while it decomposes, and traces what their constructors
    do: a ``DynamicCache`` of transformers creates a constant for each layer, which the program does not have
    (``SpecViolationError: Constant tensor lifted_tensor_0 is not in the constants dictionary``).
    """
    entry, examples = program.module_call_graph[0], program.example_inputs
    signature: Any = entry.signature
    changed = signature
    if has_classes(signature.out_spec):
        changed = replace(changed, out_spec=pytree.tree_structure((0,) * signature.out_spec.num_leaves))
    if has_classes(signature.in_spec) and not any(configurations(signature.in_spec)):
        leaves = (0,) * signature.in_spec.num_leaves
        changed = replace(changed, in_spec=pytree.tree_structure((leaves, {})), forward_arg_names=None)
        program._example_inputs = None if examples is None else (tuple(pytree.tree_leaves(examples)), {})
    entry.signature = changed
    try:
        yield signature
    finally:
        entry.signature, program._example_inputs = signature, examples


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


def explain_failure(error: Exception, most: int = 600) -> str:
    """Return torch's message without frames of C++ and advice on logging, the line of the model, and a remedy."""
    message = str(error).partition("\nException raised from ")[0]
    kept = [line for line in message.splitlines() if line.strip() and not line.startswith(_ADVICE)]
    text = f"{type(error).__name__}: {' '.join(kept) if len(kept) < 3 else chr(10).join(kept)}".strip()
    text = text if len(text) <= most else f"{text[:most]} ..."
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    if frames:
        text += f" (at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {frames[-1].line})"
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in str(error)), "")
    return f"{text}; {remedy}" if remedy else text


def _is_library(file: str) -> bool:
    """Return whether a source file is torch's, Python's or this package's, or not a file."""
    ours = Path(file).is_relative_to(_TORCH) or Path(file).is_relative_to(_OURS)
    return file.startswith("<") or ours or is_standard_library(file)


@frozen_dataclass
class MarkedGraph:
    """A lowered graph, and the program's data besides it.

    ``state`` is every weight of the model by name, ``values`` the leaves of the arguments that are not tensors, and
    ``constants`` the constants that the program uses, by the model's names.
    """

    graph_module: fx.GraphModule
    state: dict[str, torch.Tensor]
    values: dict[int, object]
    constants: dict[str, Content]


def mark(program: ExportedProgram) -> MarkedGraph:
    """Convert a decomposed program's graph, in place, to the form described in ``passes.py``.

    Raises:
        ExportError: the program uses something that engines do not support, a custom object or a dynamic number.
    """
    graph_module, signature = program.graph_module, program.graph_signature
    mutated = {spec.target for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION}
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    values: dict[int, object] = {}
    constants: dict[str, Content] = {}
    leaf = 0
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            _mark_input(node, spec, leaf, values)
            leaf += 1
        elif spec.kind is InputKind.PARAMETER or (
            spec.kind is InputKind.BUFFER and (spec.persistent or spec.target in mutated)
        ):
            node.meta["weight"] = str(spec.target)
        else:
            _make_constant(graph_module, node, spec, program, constants)
    _mark_outputs(graph_module, signature.output_specs, {node.name: node.meta.get("input") for node in placeholders})
    state = {**program.constants, **program.state_dict}
    state = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    # Tied weights: all names of one tensor become the first one's node.
    groups = group_tied(state)
    first: dict[tuple[str, ...], fx.Node] = {}
    for node in graph_module.graph.find_nodes(op="placeholder"):
        if "weight" in node.meta and (twin := first.setdefault(groups[node.meta["weight"]], node)) is not node:
            node.replace_all_uses_with(twin)
            graph_module.graph.erase_node(node)
    for names, node in first.items():
        node.meta["transient"] = not any(name in program.state_dict for name in names)
    output = graph_module.graph.output_node()
    output.meta["roles"] = tuple(
        replace(role, target=first[groups[str(role.target)]].meta["weight"]) if role.kind == "weight" else role
        for role in output.meta["roles"]
    )
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and not accepts_any_layout(node.target):
            tensors = {place: tensor_of(one) for place, one in enumerate(node.args)}
            node.meta["contiguous"] = [
                place for place, one in tensors.items() if one is not None and is_contiguous(one)
            ]
    return MarkedGraph(graph_module, state, values, constants)


def _mark_input(node: fx.Node, spec: InputSpec, leaf: int, values: dict[int, object]) -> None:
    if isinstance(spec.arg, TensorArgument):
        node.meta["input"] = leaf
    elif isinstance(spec.arg, ConstantArgument):
        values[leaf] = spec.arg.value
        if node.users:
            raise ExportError("the program", f"input {node.name} is a constant that the graph still uses")
        node.graph.erase_node(node)
    elif isinstance(spec.arg, SymIntArgument):
        _mark_int(node, leaf, values)
    else:
        kind = type(spec.arg).__name__
        why = f"input {node.name} is a {kind}: only tensors and ints can vary; pass a fixed number"
        raise ExportError("the program", why)


def _mark_int(node: fx.Node, leaf: int, values: dict[int, object]) -> None:
    """Replace a dynamic int by a tensor of shape (int, 0): engines only take tensors."""
    number = node.meta["val"]
    if isinstance(number, int):  # export specialised on this value
        for user in list(node.users):
            user.args, user.kwargs = fx.node.map_arg(
                (user.args, user.kwargs), lambda one: number if one is node else one
            )
        values[leaf] = number
        node.graph.erase_node(node)
        return
    hint = number.node.hint
    if hint is not None and int(hint) < 0:
        raise ExportError("the program", f"input {node.name} is {hint}: a dynamic int cannot be negative")
    fakes = (tensor_of(other) for other in node.graph.nodes)
    fake = next((one for one in fakes if isinstance(one, FakeTensor)), None)
    if fake is None:
        raise ExportError("the program", f"input {node.name} is a dynamic int, and there are no tensors")
    users = list(node.users)
    with node.graph.inserting_after(node):
        size = node.graph.call_function(torch.ops.aten.sym_size.int, (node, 0))
    size.meta["val"] = number
    for user in users:
        user.replace_input_with(node, size)
    node.meta = {**node.meta, "input": leaf, "number": True, "val": fake.new_empty((number, 0), dtype=torch.float32)}


def _make_constant(
    graph_module: fx.GraphModule,
    node: fx.Node,
    spec: InputSpec,
    program: ExportedProgram,
    constants: dict[str, Content],
) -> None:
    if spec.kind not in {InputKind.BUFFER, InputKind.CONSTANT_TENSOR}:
        raise ExportError(
            "the program", f"{spec.target or node.name} is a {spec.kind.name}, which engines do not support"
        )
    if node.users:
        value = program.constants[str(spec.target)]
        if isinstance(value, torch.Tensor) and is_fake(value):
            raise missing_values_error("the program", [str(spec.target)])
        constant = new_constant(graph_module, value, before=node)
        constant.meta["content"] = constants[str(spec.target)] = Content.of(value)
        node.replace_all_uses_with(constant)
    node.graph.erase_node(node)


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


def _mark_outputs(graph_module: fx.GraphModule, specs: list[OutputSpec], leaves: dict[str, int | None]) -> None:
    output = graph_module.graph.output_node()
    roles: list[Role] = []
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]  # a tuple, from export
    sizes = InputSizes(graph_module.graph)
    for place, spec in enumerate(specs):
        node = results[place]
        if _is_none(node):
            results[place], role = None, Role("value")
        elif spec.kind is OutputKind.BUFFER_MUTATION:
            role = Role("weight", spec.target)
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            role = Role("input", leaves[str(spec.target)])
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument):
            role = Role("result", layout=_layout(node))
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, ConstantArgument):
            role = Role("value", value=spec.arg.value)
        elif spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, _NUMBERS):
            number = node.meta["val"] if isinstance(node, fx.Node) else node
            if isinstance(number, (bool, int, float)):
                role = Role("value", value=number)
            else:
                role = Role("size", value=number) if sizes.can_evaluate(number) else Role("number")
            results[place] = as_tensor(node, output) if role.kind == "number" else None
        elif spec.kind is OutputKind.PARAMETER_MUTATION:
            why = f"it writes to parameter {spec.target}; register it as a buffer (register_buffer) instead"
            raise ExportError("the program", why)
        else:
            what = f"{spec.kind.name} of {type(spec.arg).__name__}"
            raise ExportError("the program", f"it returns a {what}; only tensors and constants can be returned")
        roles.append(role)
    output.args = (tuple(results),)
    output.meta["roles"] = tuple(roles)


def _is_none(value: object) -> bool:
    """Return whether an operator returns None here, although its fake implementation returns an empty tensor.

    That applies to the second output of ``_native_multi_head_attention`` with ``need_weights=False``.
    """
    if not isinstance(value, fx.Node) or value.target is not operator.getitem or value.args[1] != 1:
        return False
    called = value.args[0]
    if not isinstance(called, fx.Node) or called.target is not torch.ops.aten._native_multi_head_attention.default:
        return False
    return arguments(called)[_NEED_WEIGHTS] is False


def _layout(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    shape, stride = tuple(value.shape), value.stride()
    if is_static((*shape, *stride)):
        dense = layout(shape, stride) == stride
        return tuple(sorted(range(len(shape)), key=lambda dim: -stride[dim])) if dense else None
    inner = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple(range(len(shape))) if same_sizes(stride, inner) else None

"""Decompositions: an exported program in core ATen operators, without mutation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from trtcache.errors import ExportError
from trtcache.lowering.arguments import assume_sizes_of_two, configurations, has_classes, whole_ranges
from trtcache.lowering.capture import NO_RESHAPE, explain_failure, lstm_states_in_shape
from trtcache.lowering.model_state import quiet
from trtcache.lowering.operators import all_nodes
from trtcache.lowering.rewriting import arguments, draws_random_numbers, expression, is_mutating
from trtcache.lowering.symbols import sizes_differ
from trtcache.lowering.torch_patches import copies_that_convert, quick_overrides

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NO_OP_USER = torch.ops.aten._assert_tensor_metadata.default
_DROPOUTS = {
    getattr(torch.ops.aten, name).default
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
}
_SHUFFLES = {torch.ops.aten.channel_shuffle.default, torch.ops.aten.native_channel_shuffle.default}
_THRESHOLDS = frozenset({torch.ops.aten.threshold.default, torch.ops.aten.threshold_.default})


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
            # The decomposition of a random operator may draw other numbers: `bernoulli` is not `rand() < p` on a GPU.
            # They are those of the program as it is: what follows changes its graph.
            drawing = {node.target for node in program.graph.nodes if draws_random_numbers(node)}
            table: Any = torch.export.default_decompositions()
            for target in list(table):
                if str(target).rpartition(".")[0] in keep or stays(target) or target in drawing:
                    del table[target]
            with (
                quiet(),
                _without_classes(program) as signature,
                whole_ranges() if whole else nullcontext(),
                lstm_states_in_shape(),
                copies_that_convert(),
                restore_graph(program.graph_module),
            ):
                _keep_unused_draws(program.graph)
                _make_thresholds_integers(program.graph)
                _remove_dropouts(program.graph_module)
                _copy_shuffled(program.graph)
                decomposed = _without_tokens(program.run_decompositions(table))
        decomposed.module_call_graph[0].signature, decomposed._example_inputs = signature, program.example_inputs
    except ExportError:
        raise
    except Exception as error:
        raise ExportError("the program", f"decompositions: {explain_failure(error)}") from error
    finally:
        program._guards_code = guards
    # What follows an LSTM as torch 2.11 exports it, with states of four dimensions, has shapes that no call has.
    lstms = [node for node in all_nodes(program.graph_module) if node.target is torch.ops.aten.lstm.input]
    if all(node.meta["val"][1].dim() != 4 for node in lstms):
        _compare_results(program, decomposed)
    return decomposed


@contextmanager
def restore_graph(graph_module: fx.GraphModule) -> Iterator[None]:
    """Undo, at the end of the block, what it changes in a graph and in its subgraphs: changed calls and new nodes."""
    before = {node: (node.target, node.args, node.kwargs) for node in all_nodes(graph_module)}
    try:
        yield
    finally:
        for node, (target, args, kwargs) in before.items():
            if node.target is not target or node.args is not args or node.kwargs is not kwargs:
                node.target, node.args, node.kwargs = target, args, kwargs
        for node in reversed(all_nodes(graph_module)):  # users first
            if node not in before:
                node.graph.erase_node(node)


def _keep_unused_draws(graph: fx.Graph) -> None:
    """Add a user to each unused draw of random numbers; a pass removes it.

    Decompositions remove what nothing uses, and the draws after it would then be other numbers. Nothing is added if no
    result depends on a draw.
    """
    used = set(_nodes_used(graph))
    found = [node for node in graph.nodes if draws_random_numbers(node)]
    if any(node in used or is_mutating(node) for node in found):
        for node in found:
            if node not in used:
                several = not isinstance(node.meta["val"], torch.Tensor)
                with graph.inserting_after(node):
                    value = graph.call_function(operator.getitem, (node, 0)) if several else node
                with graph.inserting_after(value):
                    graph.call_function(_NO_OP_USER, (value,))


def _make_thresholds_integers(graph: fx.Graph) -> None:
    """Let ``threshold`` of integers have integers, as its kernel converts its numbers.

    Its decomposition computes with floats, which have fewer digits (torch 2.13).
    """
    for node in graph.nodes:
        if node.target in _THRESHOLDS and not (value := node.args[0].meta["val"].dtype).is_floating_point:
            numbers = [int(one) if isinstance(one, float) and value is not torch.bool else one for one in node.args[1:]]
            node.args = (node.args[0], *numbers)


def _remove_dropouts(graph_module: fx.GraphModule) -> None:
    """Let a dropout without effect be an alias of its input, if a tensor is changed in place.

    It returns its input, so an in-place change affects both; decompositions make it another tensor (torch 2.13).
    """
    nodes = all_nodes(graph_module)
    dropouts = [node for node in nodes if node.target in _DROPOUTS] if any(map(is_mutating, nodes)) else []
    for node in dropouts:
        source, probability, train = arguments(node)
        if train is False or probability == 0:
            node.target, node.args, node.kwargs = torch.ops.aten.alias.default, (source,), {}


def _copy_shuffled(graph: fx.Graph) -> None:
    """Copy the input of a ``channel_shuffle`` that keeps the order: its decomposition returns a view.

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
    for node in [node for node in graph.nodes if node.target in _SHUFFLES]:
        source, groups = arguments(node)
        if groups in (1, expression(source.meta["val"].shape[1])):
            with graph.inserting_before(node):
                copy = graph.call_function(torch.ops.aten.clone.default, (source,))
            node.replace_input_with(source, copy)


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
                raise ExportError("the program", f"forward changes the shape of {spec.target} in place: {NO_RESHAPE}")
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

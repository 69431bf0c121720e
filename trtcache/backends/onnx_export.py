"""ONNX export of a lowered program, with every weight intact under its name in the weight map.

In attention, torch returns zeros for a row whose mask hides every key. In ONNX such a row would be a mean of hidden
values, or NaN. So these rows see every key in the exported attention, and their results are set to zero after it.

``torch.onnx`` folds and transposes initializers under unchanged or new names. So weights pass through its optimiser as
graph inputs, which it cannot modify, and become initializers afterwards. The initializers have no data in the model:
its reader gets the weights' own memory.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.onnx_operators import OnnxModel
from trtcache.backends.program_forms import input_name, to_exported_program
from trtcache.errors import BuildError, UnsupportedOperatorError
from trtcache.lowering import patch_attributes
from trtcache.lowering.model_state import quiet
from trtcache.lowering.rewriting import arguments, calls_of, insert_call, parameter_places, replace, set_arguments

if TYPE_CHECKING:
    from torch import fx

    from trtcache.lowering import LoweredProgram


log = logging.getLogger(__name__)

aten = torch.ops.aten

_ATTENTION = aten.scaled_dot_product_attention.default
_ATTENTION_RANK = 4
_LONGEST_MESSAGE = 800
_TRACE = "pkg.torch.onnx.stack_trace"
_CHATTY = ("torch.onnx", "onnxscript", "onnx_ir")

# Error messages of torch/onnx/_internal/exporter/_core.py (torch 2.11 to 2.13).
_NO_ONNX = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
_AT_NODE = re.compile(r"Error when translating node %(\w+)")
_EXPORT_LOCK = threading.Lock()
"""Held for an export, which changes other packages meanwhile: the levels of loggers, and how constants are matched."""

_MATCHERS = ("onnxscript.rewriter._matcher", "onnxscript.rewriter._ir_utils")
"""Modules of onnxscript (0.7) that compare constants in a model with those in rules."""


def why_attention_not_exportable(node: fx.Node) -> str | None:
    """Return why a call of attention cannot be exported, or None; None as well for every other operator."""
    target = node.target
    if target is _ATTENTION:
        count = node.meta["val"].dim()
        return f"torch has no ONNX for attention of {count} dimensions" if count > _ATTENTION_RANK else None
    if not str(target).startswith("aten._scaled_dot_product_"):
        return None
    # One of torch's kernels, chosen before the program was exported. Only the first of its results is exported.
    given = dict(zip(parameter_places(target), arguments(node), strict=True))
    if given.get("attn_mask") is not None or given.get("attn_bias") is not None:
        return f"torch's ONNX for {target} is wrong for a row whose mask hides every key"
    if any(user.args[1] != 0 for user in node.users):
        return f"torch's ONNX for {target} has only its first result"
    return None


def rewrite_attention(graph: fx.Graph) -> None:
    """Rewrite the calls of attention in a graph in place."""
    for node in calls_of(graph, [_ATTENTION]):
        query, key, value, mask, *options = arguments(node)
        hidden = None if mask is None else _insert_hidden_rows(node, mask)
        if hidden is not None:
            visible, option = (aten.logical_or.default, ()) if _is_bool(mask) else (aten.masked_fill.Scalar, (0.0,))
            mask = insert_call(node, visible, (mask, hidden, *option), mask.meta["val"])
        tensors = [_insert_dimensions(node, one) for one in (query, key, value)]
        result = node.meta["val"]
        unsqueezed = result[(None,) * (_ATTENTION_RANK - result.dim())]
        attention = made = insert_call(node, _ATTENTION, (), unsqueezed)
        attention.meta = {**node.meta, **attention.meta}
        set_arguments(attention, [*tensors, mask, *options])
        for _ in range(_ATTENTION_RANK - result.dim()):
            made = insert_call(node, aten.squeeze.dim, (made, 0), made.meta["val"][0])
        if hidden is not None:
            made = insert_call(node, aten.masked_fill.Scalar, (made, hidden, 0.0), result)
        replace(node, made)


def _is_bool(mask: fx.Node) -> bool:
    return bool(mask.meta["val"].dtype is torch.bool)


def _insert_hidden_rows(before: fx.Node, mask: fx.Node) -> fx.Node:
    """Insert what computes which rows have no visible key, with one column."""
    seen, value = mask, mask.meta["val"]
    if not _is_bool(mask):
        seen = insert_call(before, aten.ne.Scalar, (mask, -math.inf), value.ne(-math.inf))
    rows = seen.meta["val"].any(-1, keepdim=True)
    return insert_call(
        before, aten.logical_not.default, (insert_call(before, aten.any.dim, (seen, -1, True), rows),), rows
    )


def _insert_dimensions(before: fx.Node, node: fx.Node) -> fx.Node:
    for _ in range(_ATTENTION_RANK - node.meta["val"].dim()):
        node = insert_call(before, aten.unsqueeze.default, (node, 0), node.meta["val"].unsqueeze(0))
    return node


def to_onnx(program: LoweredProgram, backend: str, *, weights: Mapping[str, torch.Tensor] | None = None) -> OnnxModel:
    """Export a lowered program to ONNX, with inputs ``in0``, ... and then ``w0``, ..., and outputs ``out0``, ....

    Args:
        program: the lowered program.
        backend: the backend's name, for errors.
        weights: engine weights, by name, that become initializers without data; the others stay inputs.

    Raises:
        BuildError: torch cannot export the program, or an operator of it (UnsupportedOperatorError).
    """
    from onnx import TensorProto

    exported = to_exported_program(program, backend)
    rewrite_attention(exported.graph)
    names = [*(input_name(one.leaf) for one in program.interface.inputs), *(w.name for w in program.interface.weights)]
    output_names = [f"out{place}" for place in range(len(exported.graph_signature.output_specs))]
    try:
        with _EXPORT_LOCK, quiet(), quiet_exporter(), _exact_constants() as optimize:
            written = torch.onnx.export(
                exported, dynamo=True, optimize=optimize, verbose=False, input_names=names, output_names=output_names
            )
    except Exception as error:
        raise _failure(error, exported.graph, backend) from error
    proto: Any = written.model_proto  # type: ignore[union-attr]  # dynamo=True always returns one
    inputs = {given.name: given for given in proto.graph.input}
    for name, tensor in (weights or {}).items():
        elem_type = inputs[name].type.tensor_type.elem_type
        stub = TensorProto(name=name, dims=list(tensor.shape), data_type=elem_type)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="weights")
        proto.graph.initializer.append(stub)
        proto.graph.input.remove(inputs[name])
    source_lines = {}
    for node in proto.graph.node:
        traces = [entry.value for entry in node.metadata_props if entry.key == _TRACE]
        if line := source_line("\n".join(traces)):
            source_lines[node.name] = line
    return OnnxModel(
        content=proto.SerializeToString(),
        weights={name: tensor.detach().cpu().contiguous() for name, tensor in (weights or {}).items()},
        inputs=tuple(one.name for one in proto.graph.input),
        outputs=tuple(one.name for one in proto.graph.output),
        places=source_lines,
    )


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence warnings and logs of torch.onnx and its libraries."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _exact_constants() -> Iterator[bool]:
    """Let onnxscript's rules match exact constants only in the block; yield whether its optimiser can be used.

    By default they match all within 1e-8 and 0.001 %: ``x + 1e-8`` became ``x``, and a division by it NaN.
    """
    try:
        modules: list[Any] = [import_module(name) for name in _MATCHERS]
    except ImportError as error:
        log.info("torch.onnx exports without its optimiser: %s", error)
        yield False
        return
    with ExitStack() as patches:
        for module in modules:
            patches.enter_context(patch_attributes(module, math=_ExactMath()))
        yield True


class _ExactMath:
    """The module ``math`` with a comparison that is exact, but for the rounding to a smaller dtype."""

    def __getattr__(self, name: str) -> Any:
        """Return a function of ``math``."""
        return getattr(math, name)

    @staticmethod
    def isclose(found: float, expected: float, **_: float) -> bool:
        """Return whether a constant is the expected one, in float64, float32 or float16."""
        rounded = (torch.tensor(expected, dtype=dtype).item() for dtype in (torch.float32, torch.float16))
        return found == expected or found in rounded


def source_line(trace: str) -> str:
    """Return the innermost line of a stack outside of torch, or else the innermost one; empty without a stack."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    users = [line for line in lines if "/site-packages/torch/" not in line]
    return (users or lines or [""])[-1].removeprefix("File ").replace('"', "")


def _failure(error: Exception, graph: fx.Graph, backend: str) -> BuildError:
    """Return the error for a failed export: the operator that cannot be exported, or torch's message."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    operator = _NO_ONNX.search(str(chain[-1]))
    node = next((found[1] for one in reversed(chain) if (found := _AT_NODE.search(str(one)))), "")
    if operator is None:
        text = f"{type(chain[-1]).__name__}: {chain[-1]}".strip()
        return BuildError(backend, f"torch.onnx: {text[:_LONGEST_MESSAGE]}")
    traces = [one.stack_trace for one in graph.nodes if one.name == node and one.stack_trace]
    where = source_line(traces[0]) if traces else ""
    return UnsupportedOperatorError(backend, "torch has no ONNX for it", node, operator[1], where)

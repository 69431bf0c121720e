"""Patches of torch for decompositions: repeated work, and copies that convert. They end with their block."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._export import utils
from torch._ops import OperatorBase

from trtcache.lowering import patch_attributes
from trtcache.lowering.symbols import sizes_differ

_materialize = utils._materialize_cpp_cia_ops
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
_py_impl: Callable[[OperatorBase, Any], Any] = OperatorBase.py_impl


@contextmanager
def quick_overrides() -> Iterator[None]:
    """Let torch look composite operators up once in the block, and register kernels without other work.

    ``ExportedProgram.run_decompositions`` replaces the kernels of all composite operators, some 800, and restores them.
    That takes 0.12 s for any program, nearly all of it for two things: ``_materialize_cpp_cia_ops`` looks the operators
    up again for each of 27 namespaces, twice, and ``py_impl`` evaluates its annotations for each of 11,000 kernels.
    Operators that are defined in the block may not be found.
    """
    is_known = False

    def materialize_once() -> None:
        nonlocal is_known
        if not is_known:
            _materialize()
            is_known = True

    with (
        patch_attributes(utils, _materialize_cpp_cia_ops=materialize_once),
        patch_attributes(OperatorBase, py_impl=_register_kernel),
    ):
        yield


def _register_kernel(operator: OperatorBase, key: Any) -> Any:
    """Return a decorator that registers a kernel for a dispatch key, as ``OperatorBase.py_impl`` does."""
    if type(key) is not torch._C.DispatchKey or key == torch._C.DispatchKey.Python or key in operator.py_kernels:
        return _py_impl(operator, key)  # a mode, a transform, or an error

    def register(kernel: Any) -> Any:
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
        return kernel

    return register


@contextmanager
def copies_that_convert() -> Iterator[None]:
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

    with patch_attributes(module, _remove_unnecessary_copy_op_pass=remove_copies):
        yield


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

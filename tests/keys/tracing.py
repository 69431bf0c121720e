"""Makes many exports in one process quicker."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import library
from torch._decomp import decomposition_table
from torch._decomp.decompositions_for_rng import PhiloxState
from torch._export import utils
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._subclasses import fake_impls
from torch.export import decomp_utils, exported_program
from torch.export.decomp_utils import CustomDecompTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Kernel = Callable[..., object]


@contextmanager
def operators_listed_once() -> Iterator[None]:
    """Let torch list its operators and their decompositions once, and override these with fewer calls: 0.1 s a program.

    A list holds until an operator or a decomposition is registered.
    """
    collect, default = utils._collect_all_valid_cia_ops, torch.export.default_decompositions
    split = exported_program._split_decomp_table_to_cia_and_python_decomp
    lists: dict[object, set[Any]] = {}
    defaults: dict[object, CustomDecompTable] = {}
    parts: dict[object, tuple[dict[Any, Kernel], ...]] = {}

    def listed() -> set[Any]:
        now = _registered()
        if now not in lists:
            lists[now] = collect()
        return lists[now]

    def default_once() -> CustomDecompTable:
        now = _registered()
        if now not in defaults:
            defaults[now] = default()
            defaults[now].materialize()
        table = CustomDecompTable.__new__(CustomDecompTable)
        table.decomp_table = defaults[now].decomp_table.copy()
        table.deleted_custom_ops, table.has_materialized = set(), True
        return table

    def split_once(table: dict[Any, Kernel]) -> tuple[dict[Any, Kernel], ...]:
        chosen = _registered(), *map(id, table), *map(id, table.values())
        if chosen not in parts:  # what has these identities is kept, or something else could get one of them
            parts[chosen] = (table.copy(), *split(table))
        return tuple(part.copy() for part in parts[chosen][1:])

    with ExitStack() as patches:
        for module in (utils, decomp_utils, exported_program):
            patches.enter_context(mock.patch.object(module, "_collect_all_valid_cia_ops", listed))
        for module in (torch.export, exported_program):
            patches.enter_context(mock.patch.object(module, "default_decompositions", default_once))
        patches.enter_context(
            mock.patch.object(exported_program, "_split_decomp_table_to_cia_and_python_decomp", split_once)
        )
        patches.enter_context(mock.patch.object(exported_program, "_override_composite_implicit_decomp", _override))
        patches.enter_context(mock.patch.object(PhiloxState, "reset", _reset))
        yield


@contextmanager
def registry_made_once() -> Iterator[None]:
    """Let torch.onnx make its registry once, which saves 0.4 s an export; do nothing without onnxscript."""
    if importlib.util.find_spec("onnxscript") is None:
        yield
        return
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    made = cache(ONNXRegistry.from_torchlib.__func__)  # type: ignore[attr-defined]  # a class method
    with mock.patch.object(ONNXRegistry, "from_torchlib", classmethod(made)):
        yield


_counts: dict[tuple[int, ...], int] = {}


def _registered() -> tuple[int, int]:
    """Return how many operators torch has decompositions of, in C++ and in Python."""
    seen = len(library._impls), len(library._defs), len(torch.ops.loaded_libraries), len(sys.modules)
    if seen not in _counts:  # nothing else registers an operator, and to list them takes a millisecond
        _counts.clear()
        _counts[seen] = len(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
    return _counts[seen], len(decomposition_table)


_EMPTY = torch.tensor(())


def _reset(state: PhiloxState) -> None:
    """Do what torch's own method does, which makes two empty tensors, twelve times in each decomposition."""
    state.seed = state.base_offset = _EMPTY
    state.relative_offset, state.offset_advanced_at_least_once = 0, False


_overridden: dict[Any, tuple[dict[Any, Kernel], Kernel, dict[Any, Kernel], Kernel]] = {}
"""An operator's kernels and the decomposition that overrides it -> its kernels then, and for fake tensors."""


@contextmanager
def _override(decompositions: Mapping[Any, Kernel]) -> Iterator[None]:
    """Do what torch's own function does, which registers 22 kernels of each of 250 operators one by one."""
    saved = {operator: operator.py_kernels for operator in decompositions}
    for operator, decomposition in decompositions.items():
        kernels, known = saved[operator], _overridden.get(operator)
        if known is None or known[0] != kernels or known[1] is not decomposition:
            known = _overridden[operator] = (kernels.copy(), decomposition, *_kernels(operator, decomposition))
        operator.py_kernels = known[2].copy()
        operator._dispatch_cache.clear()
        fake_impls.op_implementations_dict.setdefault(operator, known[3])
    try:
        yield
    finally:
        for operator, kernels in saved.items():
            operator.py_kernels = kernels
            operator._dispatch_cache.clear()
            fake_impls._deregister_op_impl(operator)


def _kernels(operator: Any, decomposition: Kernel) -> tuple[dict[Any, Kernel], Kernel]:
    original = utils._get_decomp_for_cia(operator)
    refusal = autograd_not_implemented(operator, deferred_error=True)
    kernels = dict.fromkeys(exported_program._BACKEND_KEYS_TO_OVERRIDE, original)
    kernels |= dict.fromkeys(exported_program._AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE, refusal)
    kernels |= {**operator.py_kernels, torch._C.DispatchKey.CompositeImplicitAutograd: decomposition}
    return kernels, partial(_call_in_mode, original=original)


def _call_in_mode(fake_tensor_mode: Any, _operator: object, *args: Any, original: Kernel, **kwargs: Any) -> object:
    with fake_tensor_mode:
        return original(*args, **kwargs)

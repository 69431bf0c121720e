"""Makes many exports in one process quicker."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch._export import utils
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._subclasses import fake_impls
from torch.export import decomp_utils, exported_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Kernel = Callable[..., object]


@contextmanager
def operators_listed_once() -> Iterator[None]:
    """Let torch list its operators once, and override their decompositions with fewer calls, 0.1 s for each program.

    A list holds until an operator is registered.
    """
    collect, lists = utils._collect_all_valid_cia_ops, {}

    def listed() -> set[object]:
        count = len(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if count not in lists:
            lists[count] = collect()
        return lists[count]

    with ExitStack() as patches:
        for module in (utils, decomp_utils, exported_program):
            patches.enter_context(mock.patch.object(module, "_collect_all_valid_cia_ops", listed))
        patches.enter_context(mock.patch.object(exported_program, "_override_composite_implicit_decomp", _override))
        yield


@contextmanager
def _override(decompositions: Mapping[Any, Kernel]) -> Iterator[None]:
    """Do what torch's own function does, which registers 22 kernels of each of 250 operators one by one."""
    keys = torch._C.DispatchKey
    saved = {}
    for operator, decomposition in decompositions.items():
        kernels = operator.py_kernels
        saved[operator] = kernels.copy()
        original = utils._get_decomp_for_cia(operator)
        refusal = autograd_not_implemented(operator, deferred_error=True)
        for key in exported_program._AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE:
            kernels.setdefault(key, refusal)
        kernels[keys.CompositeImplicitAutograd] = decomposition
        for key in exported_program._BACKEND_KEYS_TO_OVERRIDE:
            kernels.setdefault(key, original)
        operator._dispatch_cache.clear()
        if not fake_impls._is_op_registered_to_fake_rule(operator):
            fake_impls.register_op_impl(operator)(partial(_call_in_mode, original=original))
    try:
        yield
    finally:
        for operator, kernels in saved.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
            fake_impls._deregister_op_impl(operator)


def _call_in_mode(fake_tensor_mode: Any, _operator: object, *args: Any, original: Kernel, **kwargs: Any) -> object:
    with fake_tensor_mode:
        return original(*args, **kwargs)

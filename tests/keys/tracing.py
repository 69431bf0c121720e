"""Makes many exports in one process quicker."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import torch
from torch._export import utils
from torch._ops import OperatorBase
from torch.export import decomp_utils, exported_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Kernel = Callable[..., object]

_OWN_PY_IMPL = OperatorBase.py_impl


@contextmanager
def operators_listed_once() -> Iterator[None]:
    """Let torch list its operators once: it lists all 1,000, twice for each program, and takes 0.1 s.

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
        patches.enter_context(mock.patch.object(OperatorBase, "py_impl", _py_impl))
        yield


def _py_impl(operator: OperatorBase, key: object) -> Callable[[Kernel], Kernel]:
    """Do what torch's own ``py_impl`` does, 11,000 times for a program: that evaluates an annotation each time."""
    if not isinstance(key, torch._C.DispatchKey) or key == torch._C.DispatchKey.Python:
        return _OWN_PY_IMPL(operator, key)

    def registered(kernel):
        if key in operator.py_kernels:
            raise RuntimeError(f"Trying to override a python impl for {key} on operator {operator.name()}")
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
        return kernel

    return registered

"""``quick_overrides``: torch's preparations for decompositions without their repetitions.

``ExportedProgram.run_decompositions`` replaces the kernels of all composite operators, some 800, and restores them.
That takes 0.12 s for any program, nearly all of it for two things: ``_materialize_cpp_cia_ops`` looks the operators up
again for each of 27 namespaces, twice, and ``py_impl`` evaluates its annotations for each of 11,000 kernels.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._export import utils
from torch._ops import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_materialize = utils._materialize_cpp_cia_ops
_py_impl: Callable[[OperatorBase, Any], Any] = OperatorBase.py_impl


@contextmanager
def quick_overrides() -> Iterator[None]:
    """Let torch look composite operators up once in the block, and register kernels without other work.

    Operators that are defined in the block may not be found.
    """
    is_known = False

    def materialize_once() -> None:
        nonlocal is_known
        if not is_known:
            _materialize()
            is_known = True

    replaced: Any = OperatorBase
    utils._materialize_cpp_cia_ops, replaced.py_impl = materialize_once, _register_kernel
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops, replaced.py_impl = _materialize, _py_impl


def _register_kernel(operator: OperatorBase, key: Any) -> Any:
    """Return a decorator that registers a kernel for a dispatch key, as ``OperatorBase.py_impl`` does."""
    if type(key) is not torch._C.DispatchKey or key == torch._C.DispatchKey.Python or key in operator.py_kernels:
        return _py_impl(operator, key)  # a mode, a transform, or an error

    def register(kernel: Any) -> Any:
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
        return kernel

    return register

"""What ``forward`` does that ``torch.export`` does not record, though it succeeds."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from trtcache.errors import ExportError
from trtcache.lowering.operators import is_standard_library

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCH = f"{Path(torch.__file__).parent}/"
_DATA: Any = torch.Tensor.data


@contextmanager
def reject_unrecorded(label: str) -> Iterator[None]:
    """Reject a model whose ``forward`` does in the block what ``torch.export`` does not record.

    An operator that another thread calls is lost. An error of torch's that ``forward`` catches may be one of the export
    alone, in which tensors have no values: the program would have the branch for errors. What is assigned to ``data``
    of a weight or an argument is lost.

    Raises:
        ExportError: it does.
    """
    calls = _Calls()
    with _watch_threads() as elsewhere, calls:
        yield
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

    def __init__(self) -> None:
        super().__init__()
        self.sets_data = False
        self._errors: list[tuple[str, BaseException]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _DATA.__set__:
            self.sets_data = True
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            self._errors.append((getattr(func, "__name__", repr(func)), error))
            raise

    def first_caught(self) -> str:
        """Return the name of the first function whose error was caught by code that is not torch's, and the error."""
        for name, error in self._errors:
            caught_by = error.__traceback__  # begins with the frame that caught it
            path = caught_by.tb_frame.f_code.co_filename if caught_by is not None else _TORCH
            if not path.startswith((_TORCH, "<frozen ")) and not is_standard_library(path):
                return f"{name} ({type(error).__name__})"
        return ""


@contextmanager
def _watch_threads() -> Iterator[list[str]]:
    """Yield a list, to which operators on fake tensors are added that another thread calls: torch.export loses them."""
    owner, found = threading.get_ident(), list[str]()
    kind: Any = FakeTensor
    dispatch = vars(FakeTensor)["__torch_dispatch__"]

    def watch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if threading.get_ident() != owner:
            found.append(str(func))
        return dispatch.__func__(cls, func, types, args, kwargs or {})

    kind.__torch_dispatch__ = classmethod(watch)
    try:
        yield found
    finally:
        kind.__torch_dispatch__ = dispatch

"""Coverage that looks away while torch works.

It follows every call of every Python frame, torch's as well, to find that it need not count its lines: an export of a
BERT takes 1.6 times as long under it (Python 3.11, coverage 7). So it is paused where torch begins, and goes on after.
"""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch._inductor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BEGINS = (
    (torch.export, "export"),
    (torch.export.ExportedProgram, "run_decompositions"),
    (torch._inductor, "aot_compile"),
)


@contextmanager
def torch_untraced() -> Iterator[None]:
    """Pause coverage in this process wherever torch exports, decomposes or builds."""
    with ExitStack() as patches:
        if sys.gettrace() is not None:
            for owner, name in _BEGINS:
                patches.enter_context(mock.patch.object(owner, name, _untraced(getattr(owner, name))))
        yield


def _untraced(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def paused(*args: Any, **kwargs: Any) -> Any:
        if _is_ours(args):
            return call(*args, **kwargs)
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return call(*args, **kwargs)
        finally:
            sys.settrace(tracer)
            _resume()

    return paused


def _is_ours(args: tuple[Any, ...]) -> bool:
    """Say whether torch would run code of this project: a module that interprets TorchScript or an ONNX graph."""
    return any(type(one).__module__.partition(".")[0].startswith("trtcache") for one in args)


def _resume() -> None:
    """Be called: coverage's tracer in C takes over at a call, and has to see the end of the one that paused it."""

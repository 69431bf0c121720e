"""Lowering: from a model to the lowered program.

``lower`` and its dependencies (``torch.export``, sympy) are imported on first use, which takes half a second: a hit
through a key alias lowers nothing, and only needs the modules that describe a program's interface.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.lowering.program import LoweredProgram as LoweredProgram
    from trtcache.lowering.stages import lower as lower

_EXPORTS = {"LoweredProgram": "trtcache.lowering.program", "lower": "trtcache.lowering.stages"}

__all__ = ["TORCH_LOCK", "LoweredProgram", "export_lock", "lower", "patch_attributes"]

TORCH_LOCK = threading.RLock()
"""Held by a thread in which torch loads, exports, decomposes or compiles a program.

``torch.export.load``, ``torch.export.export``, its decompositions and Inductor use global state: of four threads that
used them concurrently three failed (torch 2.13: ``_CURRENT_DESERIALIZER is already set``).
"""


@contextmanager
def export_lock(*, imports_dynamo: bool = True) -> Iterator[None]:
    """Hold what an export needs: Dynamo's lock, and then ``TORCH_LOCK``.

    Unless ``imports_dynamo``, only the latter in a process that has not imported Dynamo, which takes half a second.

    ``torch.export`` of ``torch.cond`` or ``flex_attention`` compiles, for which it takes Dynamo's lock. A thread in
    ``torch.compile`` holds that lock when its backend takes ``TORCH_LOCK``: in the other order the two would wait for
    each other.
    """
    with ExitStack() as locks:
        if imports_dynamo or "torch._dynamo.convert_frame" in sys.modules:
            from torch._dynamo.convert_frame import compile_lock  # torch.export imports it

            locks.enter_context(compile_lock)
        locks.enter_context(TORCH_LOCK)
        yield


@contextmanager
def patch_attributes(owner: Any, /, **values: Any) -> Iterator[None]:
    """Replace attributes of a module, a class or an object in the block, in every thread."""
    own = vars(owner)
    before = {name: own[name] for name in values if name in own}  # other threads may add names meanwhile
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in values:
            if name in before:
                setattr(owner, name, before[name])
            elif name in vars(owner):  # else it could not be set; its class has one
                delattr(owner, name)


__getattr__ = lazy_names(__name__, _EXPORTS)

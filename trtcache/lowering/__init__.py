"""Lowering: from a model to the lowered program.

``lower`` and its dependencies (``torch.export``, sympy) are imported on first use, which takes half a second: a hit
through a key alias lowers nothing, and only needs the modules that describe a program's interface.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trtcache.config.lazy import lazy_names

if TYPE_CHECKING:
    from trtcache.lowering.program import LoweredProgram as LoweredProgram
    from trtcache.lowering.stages import lower as lower

_EXPORTS = {"LoweredProgram": "trtcache.lowering.program", "lower": "trtcache.lowering.stages"}

__all__ = ["TORCH_LOCK", "LoweredProgram", "lower"]

TORCH_LOCK = threading.RLock()
"""Held by a thread in which torch loads, exports, decomposes or compiles a program.

``torch.export.load``, ``torch.export.export``, its decompositions and Inductor use global state: of four threads that
used them concurrently three failed (torch 2.13: ``_CURRENT_DESERIALIZER is already set``).
"""


__getattr__ = lazy_names(__name__, _EXPORTS)

"""A lock for tracing with torch.

``torch.export.load``, ``torch.export.export``, its decompositions and Inductor use global state: of four threads that
used them concurrently three failed (torch 2.13: ``_CURRENT_DESERIALIZER is already set``).
"""

from __future__ import annotations

import threading

ALONE = threading.RLock()
"""Held by a thread in which torch loads, exports, decomposes or compiles a program."""

"""torch traces in one thread at a time.

``torch.export.load``, ``torch.export.export``, its decompositions and Inductor keep what they are at in variables of
the process: of four threads that did so at once three failed (torch 2.13: ``_CURRENT_DESERIALIZER is already set``).
"""

from __future__ import annotations

import threading

ALONE = threading.RLock()
"""Held by a thread that has torch load, export, decompose or compile a program."""

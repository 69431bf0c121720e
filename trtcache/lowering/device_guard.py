"""Fake tensors in several threads with torch 2.11 for CUDA, on a machine without a GPU.

The first use of fake tensors replaces the process's guard of CUDA devices by one in the memory of its thread
(``FakeTensorMode.__enter__``). Once that thread has ended, the next export or ``torch.compile`` crashes the process.
"""

from __future__ import annotations

import functools
import threading

import torch


@functools.cache
def keep_device_guard() -> None:
    """Have that guard made by a thread that does not end."""
    if torch.version.cuda is None or torch.__version__ >= "2.13" or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        torch._C._ensureCUDADeviceGuardSet()
        return
    is_made = threading.Event()

    def run() -> None:
        torch._C._ensureCUDADeviceGuardSet()
        is_made.set()
        threading.Event().wait()

    threading.Thread(target=run, name="trtcache-device-guard", daemon=True).start()
    is_made.wait()

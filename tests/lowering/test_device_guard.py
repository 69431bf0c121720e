"""Exports and compilations in threads that end."""

from __future__ import annotations

import subprocess
import sys

import pytest

_THREADS = """
import threading

def run(number):
    import torch, trtcache
    from trtcache.integrations import torch_compile

    model, x = torch.nn.Linear(4, number), torch.randn(2, 4)
    trtcache.lower(model, (x,))
    with torch.no_grad():
        print(tuple(torch.compile(model, backend="eager")(x).shape))

for number in (3, 4):
    thread = threading.Thread(target=run, args=(number,))
    thread.start()
    thread.join()
"""


@pytest.mark.slow
def test_threads_that_export_may_end() -> None:
    """With torch 2.11 for CUDA the second one crashed the process where there is no GPU."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["(2, 3)", "(2, 4)", ""]), done.stderr

"""What a program has written to a pseudo-terminal."""

from __future__ import annotations

import os


def read_and_close(controller: int) -> str:
    """Return what is written until the other side is closed, and close this one."""
    chunks = []
    while True:
        try:
            chunk = os.read(controller, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            chunk = b""
        if not chunk:
            os.close(controller)
            return b"".join(chunks).decode()
        chunks.append(chunk)

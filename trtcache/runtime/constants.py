"""Reads the constants of a stored entry.

They are in safetensors' format: the length of a header, the header as JSON, the bytes. Reading that takes a few lines,
where importing the library to do it took 3 ms of a hit of 60, and a hundred when its code was not in memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trtcache.frontends.checkpoint import LENGTH_BYTES, tensor_at
from trtcache.lowering.contents import Content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch


def in_order(names: Iterable[str]) -> list[str]:
    """Return ``c0``, ``c1``, ... ``c10`` by their numbers."""
    return sorted(names, key=lambda name: int(name.removeprefix("c")))


def read_constants(
    content: bytes, written: Mapping[str, tuple[str, str]], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return constants where the engine wants them.

    Args:
        content: the member.
        written: digest and kind of device of each, as the interface has them.
        device: the engine's.

    Raises:
        ValueError: one is missing, or is not the one of its digest.
        LookupError: the member has a dtype that is not known.
        TypeError: its header is of another form.
    """
    placed: dict[str, torch.Tensor] = {}
    if not written:
        return placed
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:start])
    data = memoryview(bytearray(content[start:]))
    for name in in_order(written):
        digest, kind = written[name]
        tensor = tensor_at(header[name], data)
        if Content.of(tensor).digest != digest:
            raise ValueError(f"constant {name} is not the one of the key")
        placed[name] = tensor.to(device if kind == device.type else kind)
    return placed

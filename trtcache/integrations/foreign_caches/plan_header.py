"""What the first 64 bytes of a plan say, without the library that made it.

TensorRT shows one thing, in trtexec's ``--getPlanVersionOnly``: the tag ``ftrt``, a serialization version of 0, and
its own version in bytes 24 to 27. The rest is what plans showed that TensorRT-RTX 1.4.0 and 1.7.1 built on a CPU, for
each capability alone and for several: the tag ``vtrt``, the length of the whole plan in bytes 16 to 23, the version in
the same place, and from byte 32 on a set of compute capabilities. Where a plan of TensorRT has its own is not known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 64

_TENSORRT, _OLDER, _RTX = b"ftrt", b"ptrt", b"vtrt"
_RTX_LAYOUT = 2
_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
_FIELDS = struct.Struct("<4sIQQ4B4sI")


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """Who made a plan, and for which compute capabilities: empty where the header does not say.

    ``version`` is None where it is in a layout that is not known.
    """

    library: str
    version: str | None
    capabilities: tuple[str, ...]


def read_header(head: bytes, size_bytes: int) -> PlanHeader:
    """Return what the first bytes of a plan say, which is ``size_bytes`` long.

    Raises:
        ValueError: it is no plan, or shorter or longer than it says.
    """
    if len(head) < HEADER_BYTES:
        raise ValueError(f"{len(head)} bytes are no plan")
    tag, layout, kind, said_bytes, *version, _, capabilities = _FIELDS.unpack_from(head)
    text = ".".join(map(str, version))
    if tag == _TENSORRT:
        return PlanHeader("TensorRT", text if layout == 0 else None, ())
    if tag == _OLDER:
        return PlanHeader("TensorRT", None, ())
    if tag != _RTX:
        raise ValueError("it does not begin as a plan does")
    if (layout, kind) != (0, _RTX_LAYOUT):
        return PlanHeader("TensorRT-RTX", None, ())
    if said_bytes != size_bytes:
        raise ValueError(f"it is {size_bytes} bytes long and says {said_bytes}")
    return PlanHeader("TensorRT-RTX", text, _named(capabilities))


def _named(bits: int) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(_CAPABILITIES) if bits >> place & 1)

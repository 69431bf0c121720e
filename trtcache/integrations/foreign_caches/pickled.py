"""Location of the engine in a pickle of torch_tensorrt, without unpickling: its bytes are stored verbatim.

``pickletools`` names the instructions of a pickle and executes none. Long values are not even read: a placeholder
records their location.
"""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trtcache.integrations.foreign_caches.find import PlainFile

ENGINE: Final = "serialized_engine"

_LONGEST_READ_BYTES = 64 << 10
_MOST_INSTRUCTIONS = 10_000
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_BYTES = {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_BETWEEN = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "FRAME"}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a file that has not been read."""

    offset: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class _Instructions(io.BytesIO):
    """The input of ``pickletools``: short ranges are read, long ones are skipped."""

    def __init__(self, file: PlainFile) -> None:
        super().__init__()
        self._file, self._at = file, 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = min(self._file.size_bytes - self._at, size if size is not None else -1)
        if wanted > _LONGEST_READ_BYTES:
            span = Span(self._at, wanted)
            self._at += wanted
            return span  # type: ignore[return-value]  # pickletools only needs its length
        data = self._file.read(self._at, max(0, wanted))
        self._at += len(data)
        return data

    def readline(self, _size: int | None = -1, /) -> bytes:
        line = self._file.read(self._at, _LONGEST_READ_BYTES).partition(b"\n")
        self._at += len(line[0]) + len(line[1])
        return line[0] + line[1]


def engine_in(file: PlainFile) -> Span:
    """Return the location of the engine in a pickled entry.

    Raises:
        ValueError: it is not a pickle of an entry.
        OSError: it cannot be read.
    """
    source, text = _Instructions(file), None
    try:
        for number, (instruction, value, _) in enumerate(pickletools.genops(source)):
            if number > _MOST_INSTRUCTIONS:
                break
            if instruction.name in _BYTES and text == ENGINE and value is not None:
                return Span(source.tell() - len(value), len(value))
            if instruction.name not in _BETWEEN:
                text = value if instruction.name in _TEXTS else None
    except (ValueError, TypeError, OverflowError, AttributeError) as error:  # raised by pickletools for other bytes
        raise ValueError(f"it is not a pickle of an entry: {error!s:.100}") from error
    raise ValueError(f"it has no {ENGINE!r}")

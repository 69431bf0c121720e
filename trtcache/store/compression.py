"""zstd, as Python 3.14 has it and ``backports.zstd`` brings it to earlier ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from trtcache.store.reader import Buffer

LEVEL = 3
_MAX_WINDOW_LOG = 23  # 8 MiB: the window that every zstd decoder must accept (RFC 8878, 3.1.1.1.2)


class Compressor(Protocol):
    """Makes one frame out of chunks."""

    def compress(self, data: Buffer, /) -> bytes:
        """Return what is ready of the frame."""
        ...

    def flush(self) -> bytes:
        """Return the rest of the frame."""
        ...


def compressor(size_bytes: int) -> Compressor:
    """Return a compressor of content of this size; the frame declares the size and has a checksum."""
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
        zstd.CompressionParameter.content_size_flag: 1,
    }
    made = zstd.ZstdCompressor(options=options)
    made.set_pledged_input_size(size_bytes)
    return made


def compressed_size(sample: bytes) -> int:
    """Return how many bytes a sample is compressed."""
    return len(zstd.compress(sample, LEVEL))


def decompress(data: Buffer, size_bytes: int) -> bytes:
    """Return the content of a frame that must be ``size_bytes`` long, without ever holding more than that.

    8 KB can declare 256 MiB, and decompress to as much: the declared size is compared before anything is
    decompressed, and the output is cut off behind ``size_bytes``.

    Raises:
        ValueError: the frame is damaged, declares or has another size, wants a larger window than 8 MiB or a
            dictionary, or is followed by something.
    """
    try:
        frame = zstd.get_frame_info(data)
        if frame.decompressed_size != size_bytes or frame.dictionary_id:
            raise ValueError(f"its frame declares {frame.decompressed_size} bytes, its header {size_bytes}")
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        decompressor = zstd.ZstdDecompressor(options=options)
        plain = decompressor.decompress(data, max_length=size_bytes + 1)
    except (zstd.ZstdError, MemoryError) as error:
        raise ValueError(str(error)) from error
    if len(plain) != size_bytes or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"it has more or less than one frame of {size_bytes} bytes")
    return plain

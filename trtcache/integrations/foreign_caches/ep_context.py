"""Find the engine that an ``EPContext`` node names or holds, in an ONNX file, without the onnx package.

Only what leads to the node's attributes is read: ``ModelProto.graph`` (7), ``GraphProto.node`` (1),
``NodeProto.op_type`` (4) and ``attribute`` (5), ``AttributeProto.name`` (1), ``i`` (3) and ``s`` (4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trtcache.integrations.foreign_caches.pickled import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.integrations.foreign_caches.plain_file import PlainFile

OPERATOR: Final = "EPContext"

_GRAPH, _NODE, _OP_TYPE, _ATTRIBUTE, _NAME, _INTEGER, _BYTES = 7, 1, 4, 5, 1, 3, 4
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_MOST_FIELDS = 200_000
_LONGEST_TEXT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Context:
    """One ``EPContext`` node: the engine in the file, or the name of its file, and what it says of the GPU."""

    embedded: Span | None
    file: str | None
    capability: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    integer: int
    span: Span | None


class _Reader:
    """The fields of a message. All fields together of a file are bounded."""

    def __init__(self, file: PlainFile) -> None:
        self._file = file
        self._left = _MOST_FIELDS

    def fields(self, span: Span) -> Iterator[_Field]:
        at, end = span.offset, span.offset + span.size_bytes
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {_MOST_FIELDS} fields")
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                integer, at = self._varint(at, end)
                yield _Field(number, integer, None)
            elif wire == _LENGTH:
                size_bytes, at = self._varint(at, end)
                if size_bytes > end - at:
                    raise ValueError("a field is longer than what it is in")
                yield _Field(number, 0, Span(at, size_bytes))
                at += size_bytes
            elif wire in (_EIGHT, _FOUR):
                at += 8 if wire == _EIGHT else 4
            else:
                raise ValueError(f"a field of the unknown type {wire}")

    def inside(self, span: Span, number: int) -> Iterator[Span]:
        return (field.span for field in self.fields(span) if field.number == number and field.span is not None)

    def text(self, span: Span) -> str:
        if span.size_bytes > _LONGEST_TEXT_BYTES:
            raise ValueError(f"a name of {span.size_bytes} bytes")
        return self._file.read(span.offset, span.size_bytes).decode()

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place, byte in enumerate(self._file.read(at, min(10, end - at))):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
        raise ValueError("a number without an end")


def contexts_in(file: PlainFile) -> list[Context]:
    """Return the nodes of an ONNX file that stand for engines; of another file none.

    Raises:
        ValueError: it is no ONNX file.
        OSError: it cannot be read.
    """
    reader = _Reader(file)
    found = []
    for graph in reader.inside(Span(0, file.size_bytes), _GRAPH):
        for node in reader.inside(graph, _NODE):
            fields = list(reader.fields(node))
            kinds = [field.span for field in fields if field.number == _OP_TYPE and field.span is not None]
            if [reader.text(kind) for kind in kinds] == [OPERATOR]:
                found.append(_context(reader, [one.span for one in fields if one.number == _ATTRIBUTE and one.span]))
    return found


def _context(reader: _Reader, attributes: list[Span]) -> Context:
    integers: dict[str, int] = {}
    values: dict[str, Span] = {}
    for attribute in attributes:
        fields = list(reader.fields(attribute))
        name = next((reader.text(one.span) for one in fields if one.number == _NAME and one.span is not None), "")
        for one in fields:
            if one.number == _INTEGER:
                integers[name] = one.integer
            elif one.number == _BYTES and one.span is not None:
                values[name] = one.span
    cache = values.get("ep_cache_context")
    embedded = integers.get("embed_mode", 1) == 1
    return Context(
        embedded=cache if embedded else None,
        file=reader.text(cache) if cache is not None and not embedded else None,
        capability=reader.text(values["hardware_architecture"]) if "hardware_architecture" in values else None,
        model=reader.text(values["onnx_model_filename"]) if "onnx_model_filename" in values else None,
    )

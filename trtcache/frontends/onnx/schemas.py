"""What ONNX's own schemas say of an operator: names of its operands, its attributes and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Schema:
    """An operator of one version.

    Attributes:
        operands: names of its inputs.
        variadic: whether the last of them stands for any number of inputs.
        attributes: default of each attribute by name, an ``AttributeProto`` or None.
        types: ``AttributeProto.AttributeType`` of each attribute.
    """

    operands: tuple[str, ...]
    variadic: bool
    attributes: Mapping[str, Any]
    types: Mapping[str, int]


class Schemas:
    """Looks operators up; each is asked for once."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[tuple[str, str, int], Schema | None] = {}

    def find(self, domain: str, operator: str, version: int) -> Schema | None:
        """Return an operator as it is in a version of its domain, or None if ONNX does not have it."""
        key = (domain, operator, version)
        if key not in self._known:
            self._known[key] = _find_schema(*key)
        return self._known[key]


def domain_of(written: str) -> str:
    """Return the name of a domain; ONNX's own has two."""
    return "" if written == "ai.onnx" else written


def _find_schema(domain: str, operator: str, version: int) -> Schema | None:
    from onnx import AttributeProto, defs

    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    defaults = {
        name: one.default_value if one.default_value.type != AttributeProto.UNDEFINED else None
        for name, one in schema.attributes.items()
    }
    variadic = bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    types = {name: _code(one.type) for name, one in schema.attributes.items()}
    return Schema(tuple(one.name for one in schema.inputs), variadic, defaults, types)


def _code(kind: Any) -> int:
    """Return the number of a kind of attribute; the enumeration is no integer in every release of onnx."""
    return int(getattr(kind, "value", kind))

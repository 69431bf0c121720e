"""Engine caches of one engine, by which torch_tensorrt's own code hands over what it would keep, and takes it back.

What torch_tensorrt keeps of an engine that can be refitted is the engine without its weights, and only it can put a
partition's weights in; so both are left to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.integrations.torch_tensorrt.contracts import ENGINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.integrations.torch_tensorrt.contracts import Contract

_WEIGHT_NAMES = "weight_name_map"
_HASH = "trtcache"  # of one engine: the key was made and compared before


class Catch:
    """Has nothing, and catches what torch_tensorrt would keep."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.fields: dict[str, Any] = {}

    def get_hash(self, *_described: Any) -> str:
        """Return a name for the one engine."""
        return _HASH

    def check(self, hash: str) -> None:  # noqa: A002  # torch_tensorrt's name for it
        """Have nothing."""

    def insert(self, hash: str, entry: tuple[Any, ...]) -> None:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Catch the fields of an engine."""
        self.fields = dict(zip(self._contract.cached, entry, strict=True))


class Serve:
    """Has one engine, which was made with settings and inputs equal to those at hand: its key says so."""

    def __init__(self, contract: Contract, fields: Mapping[str, Any], inputs: Sequence[Any], settings: Any) -> None:
        given = {"input_specs": inputs, "compilation_settings": settings}
        self._entry = tuple({**fields, **given}[name] for name in contract.cached)

    def get_hash(self, *_described: Any) -> str:
        """Return a name for the one engine."""
        return _HASH

    def check(self, hash: str) -> tuple[Any, ...]:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Return the engine's fields."""
        return self._entry


def stored_fields(contract: Contract, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry keeps of a result, or of what torch_tensorrt would keep itself.

    The weight name map of versions before 2.13 is not: it was guessed from the values of one model's weights (two equal
    biases are one name), and what it lacks keeps the old values without an error. Without it torch_tensorrt makes the
    map anew from the network, and each weight must be in it.
    """
    return {**{name: source[name] for name in (ENGINE, *contract.stored)}, **_forgotten(contract)}


def _forgotten(contract: Contract) -> dict[str, None]:
    return {_WEIGHT_NAMES: None} if _WEIGHT_NAMES in contract.result else {}

"""Single-engine caches that pass one engine to or from torch_tensorrt's own code.

For a refittable engine torch_tensorrt stores the engine without weights, and only it can set a partition's weights; so
both are left to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.integrations.torch_tensorrt.contracts import ENGINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.integrations.torch_tensorrt.contracts import Contract

_WEIGHT_NAMES = "weight_name_map"
_HASH = "trtcache"  # the key was already computed and compared


class Catch:
    """An empty cache that records the engine that torch_tensorrt inserts."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.fields: dict[str, Any] = {}

    def get_hash(self, *_described: Any) -> str:
        """Return the name of the only engine."""
        return _HASH

    def check(self, hash: str) -> None:  # noqa: A002  # torch_tensorrt's name for it
        """Return None: the cache is empty."""

    def insert(self, hash: str, entry: tuple[Any, ...]) -> None:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Record the fields of an engine."""
        self.fields = dict(zip(self._contract.cached, entry, strict=True))


class Serve:
    """A cache of one engine, whose key matches the current settings and inputs."""

    def __init__(self, contract: Contract, fields: Mapping[str, Any], inputs: Sequence[Any], settings: Any) -> None:
        given = {"input_specs": inputs, "compilation_settings": settings}
        self._entry = tuple({**fields, **given}[name] for name in contract.cached)

    def get_hash(self, *_described: Any) -> str:
        """Return the name of the only engine."""
        return _HASH

    def check(self, hash: str) -> tuple[Any, ...]:  # noqa: A002, ARG002  # torch_tensorrt's signature
        """Return the engine's fields."""
        return self._entry


def stored_fields(contract: Contract, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result, or of an inserted engine, that an entry stores.

    The weight name map of versions before 2.13 is omitted: it was guessed from the values of one model's weights (two
    equal biases share a name), and weights missing in it silently keep old values. Without it torch_tensorrt rebuilds
    the map from the network, and each weight must be in it.
    """
    return {**{name: source[name] for name in (ENGINE, *contract.stored)}, **_omitted_fields(contract)}


def _omitted_fields(contract: Contract) -> dict[str, None]:
    return {_WEIGHT_NAMES: None} if _WEIGHT_NAMES in contract.result else {}

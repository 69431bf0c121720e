"""A conversion's result as members of an entry, and caches that pass one engine to or from torch_tensorrt's own code.

The members are the engine's bytes, and the rest as JSON. Nothing is pickled. For a refittable engine torch_tensorrt
stores the engine without weights, and only it can set a partition's weights; so both are left to it.

torch_tensorrt uses ``EngineCache`` only for refittable engines (``immutable_weights=False`` with
``cache_built_engines`` and ``reuse_cached_engines``), and does not report failed builds: so two processes may build
the same engine. ``trtcache.install()`` has neither limit.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch_tensorrt
from torch_tensorrt.dynamo._engine_cache import BaseEngineCache

from trtcache.cache import Cache
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import json_bytes
from trtcache.errors import CanonicalizationError, CorruptBlobError
from trtcache.integrations.torch_tensorrt.installation import ENGINE, TorchTensorrt
from trtcache.integrations.torch_tensorrt.request import Conversion, ConversionRequest, entry_name, request_for
from trtcache.keys.stored_graph import GRAPH_MEMBER
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from trtcache.digests import Json
    from trtcache.integrations.torch_tensorrt.installation import Contract
    from trtcache.store.contract import Entry
    from trtcache.store.format import Content


ENGINE_MEMBER, RESULT_MEMBER = "engine", "result.json"


def make_members(fields: Mapping[str, Any], graph: Json) -> dict[str, Content]:
    """Return the members for the fields of a result, including ``serialized_engine``, and the partition's graph."""
    rest = {name: to_json(value) for name, value in fields.items() if name != ENGINE}
    return {ENGINE_MEMBER: bytes(fields[ENGINE]), RESULT_MEMBER: json_bytes(rest), GRAPH_MEMBER: json_bytes(graph)}


def fields_of(entry: Entry, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields of an entry's result, and ``serialized_engine``.

    Raises:
        CorruptBlobError: the entry holds something else, which only a hand-made one can.
    """
    try:
        stored = json.loads(bytes(entry.read(RESULT_MEMBER)))
        fields = {name: read(stored[name]) for name in names}
        fields[ENGINE] = bytes(entry.read(ENGINE_MEMBER))
        # torch_tensorrt would misread other values as names.
        for name in ("input_names", "output_names"):
            found = fields.get(name)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise ValueError(f"{name} are {found!r:.50}")  # noqa: TRY301  # handled below
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptBlobError(str(entry.path), "member", f"not a result of torch_tensorrt: {error!r:.200}") from error
    return fields


_DTYPE = re.compile(r"[a-z]\w{0,31}")


def to_json(value: Any) -> Json:
    """Return a value as JSON.

    Raises:
        TypeError: its type has no stored form.
    """
    if value is None or type(value) in {bool, int, str}:
        return value  # type: ignore[no-any-return]  # one of the JSON types above
    match value:
        case float():
            return {"$float": value.hex()}
        case list():
            return [to_json(one) for one in value]
        case tuple():
            return {"$tuple": [to_json(one) for one in value]}
        case Mapping():
            return {"$dict": [[to_json(name), to_json(one)] for name, one in value.items()]}
        case torch.dtype():
            return {"$dtype": str(value).removeprefix("torch.")}
        case _:
            raise TypeError(f"a {type(value).__name__} has no stored form")


def read(value: Any) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: ``to_json`` does not produce it.
    """
    if isinstance(value, list):
        return [read(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("a mapping with several names")
    tag, content = next(iter(value.items()))
    if tag not in _FORMS:
        raise ValueError(f"unknown form {tag!r}")
    return _FORMS[tag](content)


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) and _DTYPE.fullmatch(name) else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a dtype")  # noqa: TRY004  # of the right type and wrong
    return dtype


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "$float": float.fromhex,
    "$tuple": lambda content: tuple(read(one) for one in content),
    "$dict": lambda content: {read(name): read(one) for name, one in content},
    "$dtype": _dtype,
}


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
    omitted = {_WEIGHT_NAMES: None} if _WEIGHT_NAMES in contract.result else {}
    return {**{name: source[name] for name in (ENGINE, *contract.stored)}, **omitted}


_logger = logging.getLogger(__name__)


@frozen_dataclass
class _PendingRequest:
    """A lookup that an insert may follow; it does not keep the partition and its weights alive."""

    request: ConversionRequest
    inputs: Sequence[Any]
    settings: Any
    since_s: float


class EngineCache(BaseEngineCache):  # type: ignore[misc]  # torch_tensorrt has no types
    """A torch_tensorrt engine cache with trtcache's store and keys. Nothing is pickled; a bad entry is a miss."""

    def __init__(
        self,
        cache: Cache | str | os.PathLike[str] | None = None,
        *,
        operator_versions: Mapping[str, str] | None = None,
    ) -> None:
        """Open the cache; see ``trtcache.install``.

        Raises:
            BackendUnavailableError: the version of torch_tensorrt is unknown.
            SettingsError: a ``TRTCACHE_*`` variable has an invalid value.
            StoreError: ``cache`` names a directory that cannot be a cache.
        """
        self._library = TorchTensorrt.of(torch_tensorrt)
        self._cache = cache if isinstance(cache, Cache) else Cache(cache)
        self._operator_versions = dict(operator_versions or {})
        self._fingerprints = Fingerprints()
        self._pending: dict[str, _PendingRequest] = {}

    def get_hash(self, gm: Any, input_specs: Sequence[Any], settings: Any) -> str:
        """Return the digest of the partition's key; empty if the partition cannot be cached."""
        conversion = Conversion(gm, input_specs, settings)
        try:
            request = request_for(
                self._library,
                conversion,
                name="partition",
                fingerprints=self._fingerprints,
                operator_versions=self._operator_versions,
            )
        except CanonicalizationError as error:
            _logger.warning("a partition is not cached: %s", error)
            return ""
        self._pending[request.key.digest] = _PendingRequest(request, input_specs, settings, time.perf_counter())
        return request.key.digest

    def check(self, hash: str, *_args: Any, **_kwargs: Any) -> tuple[Any, ...] | None:  # noqa: A002  # the base's name
        """Return the stored fields that torch_tensorrt refits an engine from, or None."""
        if hash not in self._pending:
            return None
        pending = self._pending[hash]
        entry = self._cache.get(pending.request.key)
        if entry is None:
            return None
        try:
            fields = fields_of(entry, self._library.contract.stored)
        except CorruptBlobError as error:
            _logger.warning("an entry is unusable: %s", error)
            self._cache.reject(entry, "load")
            return None
        del self._pending[hash]  # no insert follows
        return Serve(self._library.contract, fields, pending.inputs, pending.settings).check(hash)

    def insert(self, hash: str, entry: tuple[Any, ...], *_args: Any, **_kwargs: Any) -> None:  # noqa: A002  # likewise
        """Store a built engine. A failure is only a warning."""
        if hash not in self._pending:
            return
        pending = self._pending.pop(hash)
        contract = self._library.contract
        fields = dict(zip(contract.cached, entry, strict=True))
        try:
            members = make_members(stored_fields(contract, fields), pending.request.graph)
        except TypeError as error:
            _logger.warning("an engine is not stored: %s", error)
            return
        build_s = time.perf_counter() - pending.since_s
        self._cache.keep(pending.request.key, members, build_s=build_s, name=entry_name("partition"))

    def save(self, hash: str, blob: bytes, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: A002, ARG002  # the base's
        """Reject pickles, which torch_tensorrt would save here; ``insert`` stores entries.

        Raises:
            TypeError: always.
        """
        raise TypeError("EngineCache does not store pickles; call insert")

    def load(self, hash: str, *_args: Any, **_kwargs: Any) -> None:  # noqa: A002  # the base's name
        """Return None: nothing is pickled."""

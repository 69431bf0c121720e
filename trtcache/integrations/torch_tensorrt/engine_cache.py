"""An engine cache for torch_tensorrt's own interface: ``custom_engine_cache=EngineCache()``.

torch_tensorrt uses it only for refittable engines (``immutable_weights=False`` with ``cache_built_engines`` and
``reuse_cached_engines``), and does not report failed builds: so two processes may build the same engine.
``trtcache.install()`` has neither limit.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch_tensorrt
from torch_tensorrt.dynamo._engine_cache import BaseEngineCache

from trtcache.cache import Cache
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import CanonicalizationError, CorruptBlobError
from trtcache.integrations.torch_tensorrt.installation import TorchTensorrt
from trtcache.integrations.torch_tensorrt.request import Conversion, ConversionRequest, entry_name, request_for
from trtcache.integrations.torch_tensorrt.results import Serve, fields_of, make_members, stored_fields
from trtcache.weights.fingerprints import Fingerprints

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

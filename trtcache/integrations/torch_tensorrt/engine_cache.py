"""An engine cache for torch_tensorrt's own door: ``custom_engine_cache=EngineCache()``.

torch_tensorrt asks it for engines that can be refitted only (``immutable_weights=False`` with ``cache_built_engines``
and ``reuse_cached_engines``), and never says that a build failed: so two processes may build the same.
``trtcache.install()`` has neither limit.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch_tensorrt
from torch_tensorrt.dynamo._engine_cache import BaseEngineCache

from trtcache.cache import Cache
from trtcache.errors import CanonicalizationError, CorruptBlobError
from trtcache.integrations.torch_tensorrt.exchange import Serve, stored_fields
from trtcache.integrations.torch_tensorrt.library import Library
from trtcache.integrations.torch_tensorrt.request import Conversion, Request, entry_name, request_for
from trtcache.integrations.torch_tensorrt.results import fields_of, make_members
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that an answer may follow: without the partition, whose weights would be held."""

    request: Request
    inputs: Sequence[Any]
    settings: Any
    since_s: float


class EngineCache(BaseEngineCache):  # type: ignore[misc]  # torch_tensorrt has no types
    """trtcache's store and key behind torch_tensorrt's interface. Nothing is pickled, and a bad entry is a miss."""

    def __init__(
        self,
        cache: Cache | str | os.PathLike[str] | None = None,
        *,
        operator_versions: Mapping[str, str] | None = None,
    ) -> None:
        """Open the cache; as for ``trtcache.install``.

        Raises:
            BackendUnavailableError: the version of torch_tensorrt is not known.
            SettingsError: a ``TRTCACHE_*`` variable has an impossible value.
            StoreError: ``cache`` names a directory that cannot be a cache.
        """
        self._library = Library.of(torch_tensorrt)
        self._cache = cache if isinstance(cache, Cache) else Cache(cache)
        self._operator_versions = dict(operator_versions or {})
        self._fingerprints = Fingerprints()
        self._asked: dict[str, _Asked] = {}

    def get_hash(self, gm: Any, input_specs: Sequence[Any], settings: Any) -> str:
        """Return the digest of the partition's key; of a partition that cannot be described, one that is not kept."""
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
        self._asked[request.key.digest] = _Asked(request, input_specs, settings, time.perf_counter())
        return request.key.digest

    def check(self, hash: str, *_args: Any, **_kwargs: Any) -> tuple[Any, ...] | None:  # noqa: A002  # the base's name
        """Return what torch_tensorrt refits an engine from, or None."""
        if hash not in self._asked:
            return None
        asked = self._asked[hash]
        entry = self._cache.get(asked.request.key)
        if entry is None:
            return None
        try:
            fields = fields_of(entry, self._library.contract.stored)
        except CorruptBlobError as error:
            _logger.warning("an entry is of no use: %s", error)
            self._cache.reject(entry, "load")
            return None
        return Serve(self._library.contract, fields, asked.inputs, asked.settings).check(hash)

    def insert(self, hash: str, entry: tuple[Any, ...], *_args: Any, **_kwargs: Any) -> None:  # noqa: A002  # likewise
        """Keep an engine that was built. A failure is a warning: the engine is there all the same."""
        if hash not in self._asked:
            return
        asked = self._asked.pop(hash)
        contract = self._library.contract
        fields = dict(zip(contract.cached, entry, strict=True))
        try:
            members = make_members(stored_fields(contract, fields), asked.request.graph)
        except TypeError as error:
            _logger.warning("an engine is not kept: %s", error)
            return
        build_s = time.perf_counter() - asked.since_s
        self._cache.keep(asked.request.key, members, build_s=build_s, name=entry_name("partition"))

    def save(self, hash: str, blob: bytes, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: A002, ARG002  # the base's
        """Refuse: what torch_tensorrt would save here is pickled, and ``insert`` keeps entries as they are.

        Raises:
            TypeError: always.
        """
        raise TypeError("EngineCache keeps no pickles; call insert")

    def load(self, hash: str, *_args: Any, **_kwargs: Any) -> None:  # noqa: A002  # the base's name
        """Return None: nothing here is pickled."""

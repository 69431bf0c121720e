"""Adapter around torch_tensorrt's conversion of a partition.

The whole conversion of a partition is wrapped, not only torch_tensorrt's engine cache: that does not see failed
builds, and is not used for engines with immutable weights, which are the default.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BusyError, CanonicalizationError, CorruptBlobError
from trtcache.integrations.torch_tensorrt.request import (
    Conversion,
    ConversionRequest,
    entry_name,
    request_for,
    unknown_settings,
)
from trtcache.integrations.torch_tensorrt.results import Catch, Serve, fields_of, make_members, stored_fields
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    from trtcache.cache import Cache
    from trtcache.integrations.torch_tensorrt.installation import ConversionTally, TorchTensorrt
    from trtcache.store.contract import Entry
    from trtcache.store.format import Content

_logger = logging.getLogger(__name__)


@dataclass
class _Attempt:
    """One conversion: the partition's name, and the entry it was served."""

    name: str = "partition"
    hit: tuple[ConversionRequest, Entry] | None = None
    is_second: bool = False
    members: dict[str, Content] | None = None


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("trtcache.attempt", default=None)


@frozen_dataclass
class _Call:
    """A call of torch_tensorrt's ``interpret_module_to_result`` that can be repeated with other settings."""

    original: Callable[..., Any]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        return cls(original, bound.arguments)

    @property
    def conversion(self) -> Conversion:
        given = self.arguments
        bindings = given.get("input_binding_names"), given.get("output_binding_names")
        return Conversion(given["module"], given["inputs"], given["settings"], bindings)

    def run_unchanged(self) -> Any:
        return self.original(**self.arguments)

    def with_settings(self, *, keeps: bool = False, reuses: bool = False) -> _Call:
        settings = replace(self.arguments["settings"], cache_built_engines=keeps, reuse_cached_engines=reuses)
        return _Call(self.original, {**self.arguments, "settings": settings})

    def run(self, engine_cache: Any) -> Any:
        return self.original(**{**self.arguments, "engine_cache": engine_cache})


class Adapter:
    """Serve torch_tensorrt's conversions from a cache."""

    def __init__(
        self, library: TorchTensorrt, cache: Cache, tally: ConversionTally, operator_versions: Mapping[str, str]
    ) -> None:
        self._library = library
        self._cache = cache
        self._tally = tally
        self._operator_versions = operator_versions
        self._fingerprints = Fingerprints()
        self._warned: set[str] = set()

    def interpret(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a partition's result: from the cache, or built by torch_tensorrt and stored."""
        started_s = time.perf_counter()
        call, attempt = _Call.of(original, args, kwargs), _ATTEMPT.get() or _Attempt()
        request = self._request(call.conversion, attempt.name)
        if request is None:
            self._tally.add_uncached()
            return call.run_unchanged()
        if attempt.is_second:
            result, attempt.members = self._build(call, request)
            return result
        return self._fetch(call, request, attempt, started_s)

    def convert(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a partition's runtime module. A cached engine that TensorRT cannot load is rebuilt.

        Raises:
            Exception: whatever torch_tensorrt raises.
        """
        bound = inspect.signature(original).bind(*args, **kwargs)
        attempt = _Attempt(str(bound.arguments.get("name") or "partition"))
        try:
            with _attempting(attempt):
                return original(*args, **kwargs)
        except Exception as error:
            if attempt.hit is None:
                raise
            _logger.warning("an engine from the cache could not be used, and is rebuilt: %s", error)
        # Convert with a newly built engine; only if that works the entry was at fault.
        second = replace(attempt, is_second=True)
        started_s = time.perf_counter()
        with _attempting(second):
            module = original(*args, **kwargs)
        if attempt.hit and second.members is not None:
            self._replace(*attempt.hit, second.members, time.perf_counter() - started_s, attempt.name)
        return module

    def _request(self, conversion: Conversion, name: str) -> ConversionRequest | None:
        """Return the cache request, or None with a warning if the partition cannot be cached."""
        if unknown := unknown_settings(conversion.settings):
            self._warn_once(
                f"torch_tensorrt has settings that trtcache does not know: {', '.join(unknown)}; they are keyed"
            )
        if self._library.is_debugging:
            self._warn_once("torch_tensorrt's debugger is on: nothing is cached")
            return None
        try:
            return request_for(
                self._library,
                conversion,
                name=name,
                fingerprints=self._fingerprints,
                operator_versions=self._operator_versions,
            )
        except CanonicalizationError as error:
            hint = (
                "; declare it with trtcache.install(operator_versions=...)" if "operator_versions" in str(error) else ""
            )
            self._warn_once(f"{name} is not cached: {error}{hint}")
        except Exception:  # the program must run as without trtcache, whatever its graph contains
            _logger.warning("%s is not cached: it could not be described", name, exc_info=True)
        return None

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _logger.warning("%s", message)

    def _fetch(self, call: _Call, request: ConversionRequest, attempt: _Attempt, started_s: float) -> Any:
        result: Any = None

        def build() -> dict[str, Content]:
            nonlocal result
            result, members = self._build(call, request)
            if members is None:
                raise _NotKeptError
            return members

        try:
            provenance = {"torch_tensorrt": str(self._library.package.__version__)}
            entry = self._cache.get_or_build_key(
                request.key, build, name=entry_name(attempt.name), provenance=provenance
            )
        except _NotKeptError:
            self._tally.add_uncached()
            return result
        except BusyError as error:
            _logger.warning("%s is built here, since torch_tensorrt cannot wait: %s", attempt.name, error)
            self._tally.add_uncached()
            return call.run_unchanged()
        if entry.outcome == "built":
            self._tally.add(entry, time.perf_counter() - started_s)
            return result
        try:
            result = self._serve(call, request, entry)
        except CorruptBlobError as error:
            _logger.warning("an entry is unusable, and is rebuilt: %s", error)
            self._cache.reject(entry, "load")
            return self._fetch(call, request, attempt, started_s)
        except Exception as error:  # noqa: BLE001  # whatever a refit raises, including assertions
            _logger.warning("an engine from the cache could not be refitted, and is rebuilt: %s", error)
            build_started_s = time.perf_counter()
            result, members = self._build(call, request)
            if members is not None:  # only now the entry was at fault
                self._replace(request, entry, members, time.perf_counter() - build_started_s, attempt.name)
            return result
        attempt.hit = request, entry
        self._tally.add(entry, time.perf_counter() - started_s)
        return result

    def _replace(
        self, request: ConversionRequest, entry: Entry, members: dict[str, Content], build_s: float, name: str
    ) -> None:
        self._cache.reject(entry, "load")
        self._cache.keep(request.key, members, build_s=build_s, name=entry_name(name))
        self._tally.add_built(build_s)

    def _build(self, call: _Call, request: ConversionRequest) -> tuple[Any, dict[str, Content] | None]:
        """Let torch_tensorrt build; return its result, and the members of an entry unless it cannot be stored."""
        catch = Catch(self._library.contract) if request.is_refittable else None
        result = call.with_settings(keeps=request.is_refittable).run(catch)
        source = catch.fields if catch and catch.fields else result._asdict()
        try:
            return result, make_members(stored_fields(self._library.contract, source), request.graph)
        except TypeError as error:
            self._warn_once(f"a result of torch_tensorrt is not stored: {error}")
            return result, None

    def _serve(self, call: _Call, request: ConversionRequest, entry: Entry) -> Any:
        contract = self._library.contract
        fields = fields_of(entry, contract.stored)
        if request.is_refittable:
            asking = call.with_settings(reuses=True)
            return asking.run(Serve(contract, fields, asking.conversion.inputs, asking.conversion.settings))
        return self._library.result(fields, call.conversion.module)


class _NotKeptError(Exception):
    """The result has no stored form: raised in ``build`` like a build error, so ``get_or_build_key`` ends its lock."""


@contextmanager
def _attempting(attempt: _Attempt) -> Iterator[None]:
    token = _ATTEMPT.set(attempt)
    try:
        yield
    finally:
        _ATTEMPT.reset(token)

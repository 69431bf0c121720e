"""torch_tensorrt's conversion of a partition, with the cache before it.

The conversion of one partition is wrapped as a whole, not its engine cache alone: that class sees no failed build, and
is not asked for engines with immutable weights, which are the default.
"""

from __future__ import annotations

import inspect
import logging
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trtcache.errors import BusyError, CanonicalizationError, CorruptBlobError
from trtcache.integrations.torch_tensorrt import settings as settings_of
from trtcache.integrations.torch_tensorrt.exchange import Catch, Serve, stored_fields
from trtcache.integrations.torch_tensorrt.request import Conversion, Request, entry_name, request_for
from trtcache.integrations.torch_tensorrt.results import fields_of, make_members
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trtcache.cache import Cache
    from trtcache.integrations.torch_tensorrt.library import Library
    from trtcache.integrations.torch_tensorrt.tally import Tally
    from trtcache.store.entry import Entry
    from trtcache.store.format import Content

_logger = logging.getLogger(__name__)


@dataclass
class _Attempt:
    """One conversion from outside: what its partition is called, and the entry that it was served."""

    name: str = "partition"
    hit: tuple[Request, Entry] | None = None
    is_second: bool = False
    made: dict[str, Content] | None = None


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("trtcache.attempt", default=None)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of torch_tensorrt's own ``interpret_module_to_result``, which can be repeated with other settings."""

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

    def as_it_is(self) -> Any:
        return self.original(**self.arguments)

    def with_settings(self, *, keeps: bool = False, reuses: bool = False) -> _Call:
        settings = replace(self.arguments["settings"], cache_built_engines=keeps, reuse_cached_engines=reuses)
        return _Call(self.original, {**self.arguments, "settings": settings})

    def run(self, engine_cache: Any) -> Any:
        return self.original(**{**self.arguments, "engine_cache": engine_cache})


class Adapter:
    """Serves torch_tensorrt's conversions from a cache."""

    def __init__(self, library: Library, cache: Cache, tally: Tally, operator_versions: Mapping[str, str]) -> None:
        self._library = library
        self._cache = cache
        self._tally = tally
        self._operator_versions = operator_versions
        self._fingerprints = Fingerprints()
        self._told: set[str] = set()

    def interpret(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a partition's result: from the cache, or made by torch_tensorrt and kept.

        Raises:
            BuildForbiddenError: there is no entry and ``TRTCACHE_FORBID_BUILD=1``.
            Exception: whatever torch_tensorrt raises while it builds.
        """
        started_s = time.perf_counter()
        call, attempt = _Call.of(original, args, kwargs), _ATTEMPT.get() or _Attempt()
        request = self._request(call.conversion, attempt.name)
        if request is None:
            self._tally.add_uncached()
            return call.as_it_is()
        if attempt.is_second:
            result, attempt.made = self._built(call, request)
            return result
        return self._fetched(call, request, attempt, started_s)

    def convert(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return a partition's runtime module. An engine from the cache that TensorRT does not load is built again.

        Raises:
            Exception: whatever torch_tensorrt raises.
        """
        bound = inspect.signature(original).bind(*args, **kwargs)
        attempt = _Attempt(str(bound.arguments.get("name") or "partition"))
        try:
            with _during(attempt):
                return original(*args, **kwargs)
        except Exception as error:
            if attempt.hit is None:
                raise
            _logger.warning("an engine from the cache could not be used, and is built again: %s", error)
        return self._without_hit(original, args, kwargs, attempt)

    def _without_hit(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], attempt: _Attempt
    ) -> Any:
        """Convert with an engine that is built; only if that works was the entry at fault."""
        second = replace(attempt, is_second=True)
        started_s = time.perf_counter()
        with _during(second):
            module = original(*args, **kwargs)
        if attempt.hit and second.made is not None:
            self._replace(*attempt.hit, second.made, time.perf_counter() - started_s, attempt.name)
        return module

    def _request(self, conversion: Conversion, name: str) -> Request | None:
        """Return what to ask the cache for, or None, with a warning, where it cannot be asked."""
        if unknown := settings_of.unknown(conversion.settings):
            self._tell(f"torch_tensorrt has settings that trtcache does not know: {', '.join(unknown)}; they are keyed")
        if self._library.is_debugging:
            self._tell("torch_tensorrt's debugger is on: nothing is cached")
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
            hint = "; trtcache.install(operator_versions=...) takes it" if "operator_versions" in str(error) else ""
            self._tell(f"{name} is not cached: {error}{hint}")
        except Exception:  # the program must run on as it would without us, whatever its graph has
            _logger.warning("%s is not cached: it could not be described", name, exc_info=True)
        return None

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _logger.warning("%s", message)

    def _fetched(self, call: _Call, request: Request, attempt: _Attempt, started_s: float) -> Any:
        result: Any = None

        def build() -> dict[str, Content]:
            nonlocal result
            result, made = self._built(call, request)
            if made is None:
                raise _NotKeptError
            return made

        try:
            provenance = {"torch_tensorrt": str(self._library.package.__version__)}
            entry = self._cache.fetch(request.key, build, name=entry_name(attempt.name), provenance=provenance)
        except _NotKeptError:
            self._tally.add_uncached()
            return result
        except BusyError as error:
            _logger.warning("%s is built here, since torch_tensorrt knows no other way: %s", attempt.name, error)
            self._tally.add_uncached()
            return call.as_it_is()
        if entry.outcome == "built":
            self._tally.add(entry, time.perf_counter() - started_s)
            return result
        try:
            result = self._served(call, request, entry)
        except CorruptBlobError as error:
            _logger.warning("an entry is of no use, and is built again: %s", error)
            self._cache.reject(entry, "load")
            return self._fetched(call, request, attempt, started_s)
        except Exception as error:  # noqa: BLE001  # whatever a refit raises, assertions too
            _logger.warning("an engine from the cache could not be refitted, and is built again: %s", error)
            return self._rebuilt(call, request, entry, attempt.name)
        attempt.hit = request, entry
        self._tally.add(entry, time.perf_counter() - started_s)
        return result

    def _rebuilt(self, call: _Call, request: Request, entry: Entry, name: str) -> Any:
        """Build in place of a hit that could not be used; only if that works was the entry at fault."""
        started_s = time.perf_counter()
        result, made = self._built(call, request)
        if made is not None:
            self._replace(request, entry, made, time.perf_counter() - started_s, name)
        return result

    def _replace(self, request: Request, entry: Entry, made: dict[str, Content], build_s: float, name: str) -> None:
        self._cache.reject(entry, "load")
        self._cache.keep(request.key, made, build_s=build_s, name=entry_name(name))
        self._tally.add_built(build_s)

    def _built(self, call: _Call, request: Request) -> tuple[Any, dict[str, Content] | None]:
        """Let torch_tensorrt build; return its result, and the members of an entry unless it cannot be kept."""
        catch = Catch(self._library.contract) if request.is_refittable else None
        result = call.with_settings(keeps=request.is_refittable).run(catch)
        source = catch.fields if catch and catch.fields else result._asdict()
        try:
            return result, make_members(stored_fields(self._library.contract, source), request.graph)
        except TypeError as error:
            self._tell(f"a result of torch_tensorrt is not kept: {error}")
            return result, None

    def _served(self, call: _Call, request: Request, entry: Entry) -> Any:
        contract = self._library.contract
        fields = fields_of(entry, contract.stored)
        if request.is_refittable:
            asking = call.with_settings(reuses=True)
            return asking.run(Serve(contract, fields, asking.conversion.inputs, asking.conversion.settings))
        return self._library.result(fields, call.conversion.module)


class _NotKeptError(Exception):
    """What was built has no stored form; it leaves ``fetch`` as any error of a build does, with no lock held."""


@contextmanager
def _during(attempt: _Attempt) -> Iterator[None]:
    token = _ATTEMPT.set(attempt)
    try:
        yield
    finally:
        _ATTEMPT.reset(token)

"""``DirectMode``: direct mode of one ``compile`` call. It finds a manifest, or records an export and stores one."""

from __future__ import annotations

import collections
import logging
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ShapesCollection
from torch.utils import _pytree as pytree

from trtcache.config import paused_collector
from trtcache.digests import CacheKey
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.classes import exempt_attributes, layout
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.explain import (
    NO_MANIFEST,
    differences_to_newest,
    format_differences,
    format_key_differences,
    store_reason,
)
from trtcache.frontends.direct.globals import Globals, digest_of
from trtcache.frontends.direct.manifest import (
    DETAILS,
    KIND,
    MEMBER,
    DifferenceError,
    Manifest,
    check,
    make_manifest,
)
from trtcache.frontends.direct.ownership import is_versioned_module
from trtcache.frontends.direct.surroundings import surroundings
from trtcache.frontends.direct.walk import Walk
from trtcache.frontends.direct.writers import find_writer
from trtcache.keys.key import structure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.export import ExportedProgram

    from trtcache.cache import Cache
    from trtcache.digests import Digest, Json
    from trtcache.frontends.direct.recording import Recording
    from trtcache.store.entry import Entry

log = logging.getLogger(__name__)

VERIFY = "verify"
Examples = tuple[tuple[Any, ...], "Mapping[str, Any] | None", Any]
_Attribute = tuple[dict[str, Any], str, Any]


def describe(model: torch.nn.Module, examples: Examples) -> tuple[Walk, dict[str, Json]]:
    """Describe a model, the call that it is exported for, and the state of torch and Python.

    Raises:
        UnstableError: a part of them cannot be described.
    """
    args, kwargs, dynamic_shapes = examples
    if isinstance(dynamic_shapes, ShapesCollection):  # it has the sizes of arguments by their numbers in this process
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, tuple(args), dict(kwargs or {}))  # type: ignore[no-untyped-call]
    walk = Walk(model)
    for leaf in pytree.tree_leaves((args, dict(kwargs or {}))):
        walk.arguments.setdefault(id(leaf), len(walk.arguments))
    parts: dict[str, Json] = {"model": walk.model(model), "inputs": _inputs(walk, tuple(args), kwargs or {})}
    parts["dynamic_shapes"] = _dynamic(walk, dynamic_shapes)
    parts["surroundings"] = surroundings(walk)
    return walk, parts


def _dynamic(walk: Walk, shapes: Any) -> Json:
    """Describe dynamic shapes: a ``Dim`` by its name and range, which torch keeps in sympy symbols."""
    seen: dict[int, int] = {}

    def describe_leaf(leaf: Any) -> Json:
        kind = type(leaf)
        if kind is torch.export.Dim:
            number = seen.setdefault(id(leaf), len(seen))
            return ["Dim", leaf.__name__, str(leaf.min), str(leaf.max), number]
        if kind.__module__ == "torch.export.dynamic_shapes" and hasattr(leaf, "root"):  # 2 * Dim("half")
            return ["derived", leaf.__name__, describe_leaf(leaf.root), str(leaf.min), str(leaf.max)]
        if kind in {dict, list, tuple}:
            values = leaf.items() if kind is dict else enumerate(leaf)
            return [kind.__name__, *([describe_leaf(key), describe_leaf(value)] for key, value in values)]
        return walk.value(leaf)

    try:
        return describe_leaf(shapes)
    except UnstableError as error:
        raise error.below("dynamic_shapes") from None


def _inputs(walk: Walk, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
    written: list[Json] = []
    for place, leaf in enumerate(leaves):
        try:
            written.append(walk.input(leaf))
        except UnstableError as error:
            raise error.below(f"argument {place}") from None
    kinds = {node.type: None for node in _nodes(spec) if not is_versioned_module(node.type.__module__)}
    contexts: list[Json] = [walk.value(node.context) for node in _nodes(spec)]
    return [structure(spec), contexts, [walk.value(kind) for kind in kinds], *written]


def _nodes(spec: pytree.TreeSpec) -> Iterator[pytree.TreeSpec]:
    if not spec.is_leaf():
        yield spec
        for child in spec.children() if callable(spec.children) else spec.children:
            yield from _nodes(child)


class DirectMode:
    """Direct mode of one ``compile`` call, in the order of its methods.

    It describes the model and makes the direct key (``__init__``), and looks for a valid manifest under it (``find``).
    If there is none, it records the export (``record``) and stores a new manifest (``store_manifest``).

    Attributes:
        outcome: the outcome: ``hit``, ``miss: ...`` or ``off: ...``; empty until it is known.
        manifest: the valid manifest, once it is found.
        key: the direct key.
    """

    def __init__(self, model: torch.nn.Module, examples: Examples, cache: Cache, *, mode: str, name: str) -> None:
        """Describe the model, and make the direct key.

        Args:
            model: the module to compile.
            examples: positional and named arguments, and dynamic shapes.
            cache: the cache of manifests.
            mode: ``on`` or ``verify``.
            name: the name of the program.
        """
        start = time.perf_counter()
        self._model, self._examples, self._cache, self._mode, self._name = model, examples, cache, mode, name
        self.outcome = ""
        self.manifest: Manifest | None = None
        self.key: CacheKey | None = None
        self._walk: Walk | None = None
        self._parts: dict[str, Json] = {}
        self._stored: list[Manifest] = []
        self._entry: Entry | None = None
        self._recording: Recording | None = None
        self._attributes: list[_Attribute] = []
        if not cache.layers.stores:
            self.outcome = "off: there is no cache"
        else:
            self._describe()
        self.direct_s = time.perf_counter() - start

    def close(self) -> None:
        """Forget the classes that were described, so that those of models which nothing uses any more are freed."""
        for remembering in (layout, exempt_attributes, find_writer):
            remembering.cache_clear()

    def _describe(self) -> None:
        try:
            self._walk, self._parts = describe(self._model, self._examples)
            digests = {name: digest_of(part) for name, part in self._parts.items()}
            self.key = CacheKey.of(KIND, {"format": manifests.FORMAT, **digests})
        except UnstableError as error:
            self.outcome = f"off: {error}"
        except Exception as error:  # an attribute of the model can raise anything; the model is compiled all the same
            log.debug("%s cannot be described", self._name, exc_info=True)
            self.outcome = f"off: the module cannot be described ({type(error).__name__}: {error})"
            self._walk = None

    @property
    def is_verifying(self) -> bool:
        """Whether a hit is exported too, to compare the programs."""
        return self._mode == VERIFY

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The model's weights, by its names for them."""
        assert self._walk is not None  # noqa: S101  # there is no manifest without
        return self._walk.state

    def find(self) -> bool:
        """Find a manifest under the direct key that ``manifest.check`` accepts; return whether there is one."""
        start = time.perf_counter()
        try:
            with paused_collector():
                return self._find()
        finally:
            self.direct_s += time.perf_counter() - start

    def _find(self) -> bool:
        if self.key is None or self._walk is None:
            return False
        self._entry = self._cache.peek(self.key, counted=False)
        if self._entry is None:
            return False
        try:
            self._stored = manifests.read(bytes(self._entry.read(MEMBER)))
            for place, manifest in enumerate(self._stored):
                try:
                    check(manifest, self._walk)
                except DifferenceError as error:
                    self.outcome = self.outcome or f"miss: {self._format_difference(place, error)}"
                else:
                    self.manifest = manifest
                    return True
        except Exception as error:  # an intact entry can contain anything
            log.debug("the manifest of %s cannot be checked", self._name, exc_info=True)
            self._reject(f"it cannot be used: {error!r}")
        return False

    def _format_difference(self, place: int, error: DifferenceError) -> str:
        """Format a difference; the details are read only now."""
        if error.now is None or self._entry is None:
            return error.what
        try:
            details = manifests.details(bytes(self._entry.read(DETAILS)))["manifests"][place]
            return format_differences("global ", details["globals"], error.now) or error.what
        except Exception:  # only a diagnostic
            log.debug("reading the details of %s failed", self._name, exc_info=True)
            return f"{error.what} changed"

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the export in the body, unless a manifest cannot be stored."""
        store = self._cache.store
        if self.manifest is not None and not self.is_verifying:
            self.outcome = "miss: no cached key for this program with these settings"
        is_compared = self.manifest is not None and self.is_verifying  # nothing will be stored
        if is_compared or self._walk is None or self.key is None or store is None or not store.can_store_builds:
            yield
            return
        from trtcache.frontends.direct.recording import record_export
        from trtcache.lowering import export_lock

        recording: Recording | None = None
        with export_lock(), ExitStack() as stack:
            try:
                self._attributes = _containers(self._model)
                recording = stack.enter_context(record_export(Globals(self._walk.fork())))
            except Exception as error:  # a function's cache can contain anything
                log.debug("the export of %s cannot be recorded", self._name, exc_info=True)
                self.outcome = f"off: the export cannot be recorded ({type(error).__name__}: {error})"
            yield
        self._recording = recording

    def store_manifest(
        self, program: ExportedProgram, digest: Callable[[], Digest], export_s: float, *, has_alias: bool
    ) -> None:
        """Store a manifest for the next time, or record why there is none; compare the programs in mode ``verify``.

        Args:
            program: the exported program.
            digest: returns the digest that it had before it was lowered, or raises ValueError.
            export_s: seconds that exporting took.
            has_alias: whether its key alias is stored; without one a manifest would be useless.
        """
        try:
            if self.manifest is not None and self.is_verifying:
                self._verify(digest())
            elif self._recording is not None:
                with paused_collector():
                    written = make_manifest(program, digest(), export_s, self._recording, self.explain())
                    self._refuse_changes(written)
                self._store(written, has_alias=has_alias)
        except UnstableError as error:
            self.outcome = f"off: {error}"
        except Exception as error:  # the model is compiled all the same
            log.debug("%s gets no manifest", self._name, exc_info=True)
            self.outcome = f"off: {error}"
        self._recording, self._attributes = None, []
        outcome = self.outcome or (self.explain() if self.key is not None else f"miss: {NO_MANIFEST}")
        self.outcome = outcome.encode(errors="backslashreplace").decode()  # names may have lone surrogates
        log.info("%s: direct mode: %s", self._name, self.outcome)
        store_reason(self._cache, self._name, self.outcome)

    def _refuse_changes(self, written: Manifest) -> None:
        """Refuse an export that changes its own dependencies, by comparing them with those before it.

        Raises:
            ValueError: a dependency has changed.
        """
        # torch.export leaves copies of lists and dictionaries in the modules. The next process has none of them, so the
        # comparison, and later checks in this process, see the originals. If the comparison fails, the copies stay.
        copies = _swap(self._attributes)
        try:
            walk, parts = describe(self._model, self._examples)
            if any(digest_of(parts[name]) != digest_of(self._parts[name]) for name in parts):
                raise DifferenceError(format_key_differences(self._parts, parts))  # noqa: TRY301  # what check raises
            check(written, walk)
        except Exception as error:
            _swap(copies)
            if not isinstance(error, DifferenceError):
                raise
            changes = format_differences("global ", written.details["globals"], error.now) if error.now else ""
            raise ValueError(f"the export changes {changes or error}") from None

    def explain(self) -> str:
        """Return the outcome; unless it is known, set it to a miss, with the differences from the newest manifest."""
        if not self.outcome:
            self.outcome = f"miss: {differences_to_newest(self._cache, self._name, self._parts)}"
        return self.outcome

    def _store(self, manifest: Manifest, *, has_alias: bool) -> None:
        """Store a manifest if the program has a key alias.

        Raises:
            ValueError: it has none.
        """
        if not has_alias:
            raise ValueError("the program has no key alias (TRTCACHE_LOG=keys logs the reason)")
        assert self.key is not None  # noqa: S101  # it was made before
        others = [other for other in self._stored if other != manifest]
        members = manifests.write([manifest, *others], self._parts)
        self._cache.keep(self.key, members, build_s=manifest.took_s, name=self._name)

    def _verify(self, now: Digest) -> None:
        """Compare the digest of a program with that in the manifest, and reject the manifest if they differ."""
        assert self.manifest is not None  # noqa: S101  # it was found
        was = self.manifest.digest
        if now == was:
            self.outcome = "verified"
            return
        why = f"it has the program {str(was)[:16]}, but exporting the model gives {str(now)[:16]}"
        self.outcome = f"refused: {why}"
        self._reject(why)

    def _reject(self, why: str) -> None:
        assert self._entry is not None  # noqa: S101  # it was read
        log.error("the manifest of %s is refused: %s", self._name, why)
        self._cache.reject(self._entry, KIND)


def _containers(model: torch.nn.Module) -> list[_Attribute]:
    """Return the attributes of a model's modules that are built-in containers."""
    kinds = {list, dict, tuple, set, collections.OrderedDict}
    spaces = [vars(module) for module in model.modules()]
    return [(space, name, value) for space in spaces for name, value in space.items() if type(value) in kinds]


def _swap(attributes: list[_Attribute]) -> list[_Attribute]:
    """Set attributes to values, and return their previous values if they differ."""
    previous = [(space, name, space[name]) for space, name, value in attributes if space.get(name, value) is not value]
    for space, name, value in attributes:
        if name in space:
            space[name] = value
    return previous

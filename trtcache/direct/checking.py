"""Checks that all which a manifest names is as it was."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.direct.attributes import Describer, UnstableError
from trtcache.direct.classes import Looked, brief, class_parts, functions_in, own_attributes, own_bases
from trtcache.direct.codes import imported, reads, within
from trtcache.direct.files import changed_file
from trtcache.direct.following import ABSENT, in_brief, read
from trtcache.direct.origin import found
from trtcache.direct.tree import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trtcache.digests import Json
    from trtcache.direct.manifest import Manifest, OfClass, OfModule
    from trtcache.direct.tree import Tree


class DifferenceError(Exception):
    """Something is not as it was.

    Attributes:
        what: what it is, for people.
        place: where its description is among the details: ``("modules", name)`` or ``("classes", name)``.
        now: its description now.
    """

    def __init__(self, what: str, place: tuple[str, str] | None = None, now: Json = None) -> None:
        super().__init__(what)
        self.what, self.place, self.now = what, place, now


def check(manifest: Manifest, tree: Tree) -> None:
    """Make sure that all is as it was; the cheapest comes first.

    Raises:
        DifferenceError: it is not.
    """
    _check_world(manifest, tree)
    describer = tree.another()
    try:
        for module, globals_ in manifest.modules.items():
            _check_module(module, globals_, describer)
        for one in manifest.classes:
            _check_class(one, tree, describer)
    except UnstableError as error:
        raise DifferenceError(str(error)) from None


def _check_world(manifest: Manifest, tree: Tree) -> None:
    for name, value in manifest.environment.items():
        if (now := os.environ.get(name)) != value:
            raise DifferenceError(f"environment variable {name}: {value!r} -> {now!r}")
    for name in manifest.imports:
        if name not in sys.modules:
            _load(name, tree)
    for module, was in manifest.files.items():
        if why := changed_file(module, was):
            raise DifferenceError(why)


def _load(name: str, tree: Tree) -> None:
    """Import what the model imports when it is called: a manifest can name its own modules, and none besides."""
    own = {cls.__module__.partition(".")[0] for cls in tree.classes}
    if name.partition(".")[0] not in own and name not in _named(tree):
        raise DifferenceError(f"module {name} is not loaded")
    try:
        import_module(name)
    except Exception as error:  # a module can raise anything
        raise DifferenceError(f"module {name} cannot be imported ({type(error).__name__})") from error


def _named(tree: Tree) -> Iterator[str]:
    """Yield the modules that code of the model names in import statements."""
    methods = (one for cls in tree.classes for _, _, value in own_attributes(cls) for one in functions_in(value))
    for function in (*methods, *tree.describer.functions):
        for code in within(function.__code__):
            for name, level, taken in reads(code).imports:
                full = imported(name, level, function.__globals__)
                yield from (full, *(f"{full}.{one}" for one in taken))


def _check_module(name: str, was: OfModule, describer: Describer) -> None:
    module = sys.modules.get(name)
    if module is None:
        raise DifferenceError(f"module {name} is not loaded")
    now: list[Json] = []
    for one in was.names:
        value: Any = read(module, one)
        describer.again()
        try:
            now.append(value if value is ABSENT else in_brief(value) or describer.of(value))
        except UnstableError as error:
            raise error.below(f"global {one} of {name}") from None
    if digest_of(now).hex != was.digest:
        raise DifferenceError(f"globals of {name}", ("modules", name), dict(zip(was.names, now, strict=True)))


def _check_class(was: OfClass, tree: Tree, describer: Describer) -> None:
    cls: Any = tree.classes[was.number] if was.number is not None and was.number < len(tree.classes) else None
    if was.number is None:
        cls = found(was.module, was.name)
        if isinstance(cls, type) and was.in_full:
            _check_bases(cls, tree)
    label = f"{was.module}.{was.name}"
    if not isinstance(cls, type):
        raise DifferenceError(f"class {label} is not loaded")
    looked = Looked(frozenset(was.ran), frozenset(was.unread))
    now = class_parts(cls, looked, describer) if was.in_full else brief(cls, describer)
    if digest_of(now).hex != was.digest:
        raise DifferenceError(f"class {label}", ("classes", label), now)


def _check_bases(cls: type, tree: Tree) -> None:
    """Make sure that the bases of a class are those that are found by their names."""
    for one in own_bases(cls):
        if one not in tree.classes and found(one.__module__, one.__qualname__) is not one:
            raise DifferenceError(f"class {one.__module__}.{one.__qualname__} is another than its name leads to")

"""Digests of the Python code that a model runs.

Code can ask for what only an export has: its modes, its flags, the frames of its callers. So operations in a replay are
those of an export only for code whose operations were compared with one. Code that is new or has changed is a miss.
"""

from __future__ import annotations

import sys
import sysconfig
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import TYPE_CHECKING, Any

from trtcache.digests import hash_bytes
from trtcache.frontends.direct.errors import NotComparableError
from trtcache.frontends.direct.export_context import OWN_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = tuple(f"{_LIBRARY}{name}/" for name in ("site-packages", "dist-packages"))
_OF_SYMBOLS = ("sympy", "mpmath")
"""Packages that torch computes symbolic sizes with."""
_DIGEST_BYTES = 16


class ExecutedCode:
    """Collects the functions that run in ``with`` blocks, in this thread.

    Those of torch, SymPy, trtcache and the standard library are left out: their versions are parts of keys.

    Attributes:
        why_incomplete: why some are not collected; empty if all are.
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self.why_incomplete = ""

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect the functions that run in the block."""
        with (_monitor if sys.version_info >= (3, 12) else _profile)(self):
            yield

    def add(self, code: CodeType) -> None:
        """Add a function."""
        self._codes[id(code)] = code

    def require_complete(self) -> None:
        """Check that all functions are collected.

        Raises:
            NotComparableError: some are not.
        """
        if self.why_incomplete:
            raise NotComparableError(self.why_incomplete)

    @cached_property
    def by_digest(self) -> dict[str, CodeType]:
        """The code objects by their digests, when all are collected."""
        packages = [getattr(sys.modules.get(name), "__path__", ()) for name in _OF_SYMBOLS]
        known = (*OWN_FOLDERS, *(f"{path}/" for package in packages for path in package))
        return {digest(code): code for code in self._codes.values() if not _is_known(code, known)}

    def describe_change(self, known: set[str]) -> str:
        """Describe code that is not among that of the digests; return '' if there is none."""
        for one, code in self.by_digest.items():
            if one not in known:
                return f"code has changed, or did not run before: {code.co_qualname} of {Path(code.co_filename).name}"
        return ""


@contextmanager
def _monitor(code: ExecutedCode) -> Iterator[None]:
    """Add the functions that run in the block; each is reported once (PEP 669)."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # from Python 3.12 on
    tool = next((one for one in (3, 4) if monitoring.get_tool(one) is None), None)
    if tool is None:
        code.why_incomplete = "two debuggers or profilers use sys.monitoring"
        yield
        return
    thread = get_ident()

    def note(started: CodeType, _: int) -> Any:
        if get_ident() != thread:
            return None
        code.add(started)
        return monitoring.DISABLE

    events = (monitoring.events.PY_START, monitoring.events.PY_RESUME)
    monitoring.use_tool_id(tool, "trtcache")
    try:
        for event in events:
            monitoring.register_callback(tool, event, note)
        monitoring.set_events(tool, events[0] | events[1])
        monitoring.restart_events()  # what was reported to an earlier block
        yield
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        for event in events:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


@contextmanager
def _profile(code: ExecutedCode) -> Iterator[None]:
    """Add the functions that run in the block, with Python's profiler, which code in the block does not see."""
    from _lsprof import Profiler

    python: Any = sys
    get = python.getprofile
    if get() is not None:
        code.why_incomplete = "a profiler is active"
        yield
        return
    profiler: Any = Profiler(subcalls=False, builtins=False)
    python.getprofile = lambda: None
    profiler.enable()
    try:
        yield
    finally:
        if get() is not profiler:
            code.why_incomplete = "forward starts or ends a profiler"
        profiler.disable()
        python.getprofile = get
        for entry in profiler.getstats():
            if isinstance(entry.code, CodeType):
                code.add(entry.code)


def digest(code: CodeType) -> str:
    """Return the digest of a code object: of what it does, without its file and its line numbers."""
    return hash_bytes(repr(_describe(code)).encode(errors="surrogatepass")).hex()[: 2 * _DIGEST_BYTES]


def _describe(code: CodeType) -> tuple[Any, ...]:
    return (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_code,
        code.co_exceptiontable,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        *map(_describe_constant, code.co_consts),
    )


def _describe_constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _describe(value)
    if isinstance(value, tuple):
        return tuple(map(_describe_constant, value))
    if isinstance(value, frozenset):  # whose order is that of hashes
        return sorted(map(repr, value))
    return repr(value)


def _is_known(code: CodeType, folders: tuple[str, ...]) -> bool:
    path = code.co_filename
    return path.startswith(folders) or (path.startswith((_LIBRARY, "<frozen ")) and not path.startswith(_INSTALLED))

"""Digests of the Python code that a model runs.

Code can ask for what only an export has: its modes, its flags, the frames of its callers. So operations in a replay are
those of an export only for code whose operations were compared with one. Code that is new or has changed is a miss.
"""

from __future__ import annotations

import functools
import operator
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import CodeType, FunctionType, MethodType
from typing import Any

from trtcache.digests import hash_bytes
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct.export_context import OUR_FOLDER, OWN_FOLDERS
from trtcache.lowering import patch_attributes
from trtcache.lowering.operators import is_standard_library

_SYMBOLIC_PACKAGES = ("sympy", "mpmath")
"""Packages that torch computes symbolic sizes with."""
_THREAD_FUNCTIONS = frozenset(
    (f"{sysconfig.get_path('stdlib')}/{file}", name)
    for file, name in (
        ("threading.py", "start"),
        ("concurrent/futures/thread.py", "submit"),
        ("queue.py", "put"),
        *(("multiprocessing/pool.py", method) for method in ("apply_async", "_map_async", "imap", "imap_unordered")),
    )
)
"""Functions of Python, by their files, that give work to another thread, where functions are not collected."""
_FUNCTIONS = frozenset({FunctionType, MethodType, functools.partial})
_DIGEST_BYTES = 16


class ExecutedCode:
    """Collects the functions that run in ``with`` blocks, in this thread.

    Those of torch, SymPy, trtcache and the standard library are left out: their versions are parts of keys. But those
    that other code calls are collected, unless they are trtcache's.

    Attributes:
        why_incomplete: why some are not collected; empty if all are.
        functions: the digest of the calls of torch's functions (``TraceWriter.note_function``); empty until it is set.
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._calls: dict[tuple[int, int], CodeType] = {}  # by caller and called function
        self.why_incomplete = self.functions = ""

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect the functions that run in the block."""
        with (_monitor if sys.version_info >= (3, 12) else _profile)(self), _detect_trace_functions(self):
            yield

    def add(self, code: CodeType) -> None:
        """Add a function."""
        self._codes[id(code)] = code

    def add_calls(self, caller: CodeType, called: Iterable[CodeType]) -> None:
        """Add calls of functions by another."""
        for one in called:
            self._calls[id(caller), id(one)] = one

    def is_known(self, code: CodeType) -> bool:
        """Return whether a function is of torch, SymPy, trtcache or the standard library."""
        path = code.co_filename
        if path == "<string>" and code.co_qualname.startswith("__create_fn__.<locals>."):
            return True  # a method of a dataclass, such as ``__eq__``, which runs if hashes collide
        if path.startswith("<frozen "):
            return path[8:-1].partition(".")[0] in sys.stdlib_module_names
        return (path.startswith(self._known_folders) or is_standard_library(path)) and "/../" not in path

    @functools.cached_property
    def _known_folders(self) -> tuple[str, ...]:
        packages = [getattr(sys.modules.get(name), "__path__", ()) for name in _SYMBOLIC_PACKAGES]
        return (*OWN_FOLDERS, *(f"{path}/" for package in packages for path in package))

    def require_complete(self) -> None:
        """Check that all functions are collected.

        Raises:
            NotComparableError: some are not.
        """
        if any((one.co_filename, one.co_name) in _THREAD_FUNCTIONS for one in self._codes.values()):
            self.why_incomplete = "forward gives work to another thread"
        if self.why_incomplete:
            raise NotComparableError(self.why_incomplete)

    @functools.cached_property
    def by_digest(self) -> dict[str, CodeType]:
        """The code objects by their digests, when all are collected."""
        unknown = {place: code for place, code in self._codes.items() if not self.is_known(code)}
        known = [
            called
            for (caller, _), called in self._calls.items()
            if caller in unknown and not called.co_filename.startswith(OUR_FOLDER)
        ]
        return {digest(code): code for code in (*unknown.values(), *known)}

    @property
    def digests(self) -> set[str]:
        """The digests of the code, and of the calls of torch's functions."""
        return {*self.by_digest, self.functions}

    def describe_change(self, versions: Iterable[Collection[str]]) -> str:
        """Describe code that no version of it has, each its ``digests``; return '' if one has all."""
        change = ""
        for version in versions:
            unknown = [code for one, code in self.by_digest.items() if one not in version]
            if unknown:
                name, file = unknown[0].co_qualname, Path(unknown[0].co_filename).name
                change = change or f"code has changed, or did not run before: {name} of {file}"
            elif self.functions in version:
                return ""
            else:
                change = change or "other functions of torch are called, which have the same operators here"
        return change


@contextmanager
def _detect_trace_functions(code: ExecutedCode) -> Iterator[None]:
    """Detect trace and profile functions that the block sets: Python does not report what they call."""

    def replacement(name: str) -> Any:
        original = getattr(sys, name)

        def set_function(function: Any) -> None:
            if function is not None:
                code.why_incomplete = f"forward calls sys.{name}"
            original(function)

        return set_function

    with patch_attributes(sys, settrace=replacement("settrace"), setprofile=replacement("setprofile")):
        yield


@contextmanager
def _monitor(code: ExecutedCode) -> Iterator[None]:
    """Add the functions that run in the block, each the first time, and the calls of those that are not known."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]  # from Python 3.12 on
    tool = next((one for one in (3, 4) if monitoring.get_tool(one) is None), None)
    if tool is None:
        code.why_incomplete = "two debuggers or profilers use sys.monitoring"
        yield
        return
    thread, events = get_ident(), monitoring.events
    unknown = list[CodeType]()

    def note_start(started: CodeType, _: int) -> Any:
        if get_ident() != thread:
            return None
        code.add(started)
        if not code.is_known(started):  # to report the calls of torch's functions, too, takes most of a replay
            unknown.append(started)
            monitoring.set_local_events(tool, started, events.CALL)
        return monitoring.DISABLE

    def note_call(caller: CodeType, _: int, called: Any, argument: Any) -> None:
        if get_ident() == thread:
            code.add_calls(caller, _codes_run_by(called, argument))

    callbacks = {events.PY_START: note_start, events.PY_RESUME: note_start, events.CALL: note_call}
    monitoring.use_tool_id(tool, "trtcache")
    try:
        for event, callback in callbacks.items():
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME)
        monitoring.restart_events()  # what was reported to an earlier block
        yield
    finally:
        monitoring.set_events(tool, events.NO_EVENTS)
        for one in unknown:
            monitoring.set_local_events(tool, one, events.NO_EVENTS)
        for event in callbacks:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


def _codes_run_by(called: Any, argument: Any) -> list[CodeType]:
    """Return the code that a call of an object with a first argument can run; ``map`` calls its argument."""
    codes = _codes_of(called)
    return codes + _codes_of(argument) if type(argument) in _FUNCTIONS else codes


def _codes_of(called: Any) -> list[CodeType]:
    """Return the code that a call of an object runs; that of a class runs its ``__new__`` and ``__init__``."""
    kind = type(called)
    if kind is FunctionType:
        return [called.__code__]
    if kind is MethodType:
        return _codes_of(called.__func__)
    if kind is functools.partial:
        return _codes_of(called.func)
    owner, names = (called, ("__new__", "__init__")) if issubclass(kind, type) else (kind, ("__call__",))
    methods = [next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None) for name in names]
    functions = [one.__func__ if type(one) is staticmethod else one for one in methods]
    return [one.__code__ for one in functions if type(one) is FunctionType]


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
    profiler: Any = Profiler(subcalls=True, builtins=False)
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
            code.add(entry.code)
            code.add_calls(entry.code, map(operator.attrgetter("code"), entry.calls or ()))


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
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)

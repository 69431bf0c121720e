"""Records what runs while a module is exported: which of its code, and what it asks of the world outside.

A profiling function is told of every call, which costs too much for all that torch does. So it is switched on while
modules of the model run, and off inside torch's own handling of one operator, where no code of a model is: of the
0.65 s that exporting a BERT of 6 layers takes, 0.05 s are left. Python 3.12 has ``sys.monitoring`` for the same, on
which ``sys.setprofile`` is built there; one way for all versions is one way to test.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trtcache.direct import origin
from trtcache.direct.outside import asks, is_asking, is_asking_of_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from trtcache.direct.before import Before

log = logging.getLogger(__name__)

_DYNAMO = "_dynamo/symbolic_convert.py"
_SILENT = ("logging", "warnings", "linecache", "traceback", "inspect", "tokenize")
_FIND_AND_LOAD: CodeType = sys.modules["_frozen_importlib"]._find_and_load.__code__
"""What CPython runs for a module that is not there yet, and for no other: its ``import`` is not exchanged for that."""

_IMPORTS = frozenset({"_find_and_load", "_handle_fromlist"})
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: none of the types that CPython calls built in has it
_C_OF_PYTHON = frozenset({None, "builtins"})
_AROUND = ("/_compile.py", "/_dynamo/eval_frame.py", "/utils/_contextlib.py")
"""Files of torch whose functions call what they wrap: ``torch.seed`` is called through two of them."""

_ASKING = {origin.PYTHON: is_asking, origin.TORCH: is_asking_of_torch}


class Recording:
    """What was seen of one export.

    Attributes:
        ran: the model's own code that ran, with the globals that it had, by identity.
        asked: environment variables that were asked for, with what they were.
        imported: the model's own modules that were imported first, in order.
        why_not: why what was seen does not tell all.
    """

    def __init__(self, before: Before) -> None:
        """Begin with nothing seen; ``before`` looks at what code reads when it first runs."""
        self._before = before
        self.ran: dict[int, tuple[CodeType, dict[str, Any]]] = {}
        self.asked: dict[str, str | None] = {}
        self.imported: dict[str, None] = {}
        self.why_not: str = ""
        self._kinds: dict[int, tuple[CodeType, str]] = {}
        self._is_on = False
        self._importing: FrameType | None = None
        self._thread = threading.get_ident()

    @property
    def is_here(self) -> bool:
        """Whether it is the thread that exports which asks."""
        return threading.get_ident() == self._thread

    def refuse(self, why: str) -> None:
        """Note why this export cannot be known again; the first reason is kept."""
        self.why_not = self.why_not or why

    def on(self) -> None:
        """Begin to be told of calls."""
        self._is_on = True
        sys.setprofile(self._told)

    def off(self) -> None:
        """Be told of no more."""
        sys.setprofile(None)
        self._is_on = False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be told of what a module does."""
        if self._is_on or not self.is_here or sys.getprofile() is not None:
            yield
            return
        self.on()
        try:
            yield
        finally:
            self.off()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Be told of nothing that torch does."""
        if not self._is_on or not self.is_here:
            yield
            return
        self.off()
        try:
            yield
        finally:
            self.on()

    def _note_import(self, frame: FrameType, event: str) -> None:
        """Look at a module when it was imported: its code has run as it does in a process that has it already."""
        if event != "return" or frame is not self._importing:
            return
        self._importing, name = None, frame.f_locals["name"]
        if name not in sys.modules and self._is_for_model(frame.f_back):
            self.refuse(f"it tries to import {name}, which is not there and could be installed")
        if name in sys.modules and not origin.is_trusted_module(name):
            self.imported[name] = None
            self._before.all_of(sys.modules[name])

    def _told(self, frame: FrameType, event: str, argument: Any) -> None:
        known = self._kinds.get(id(frame.f_code))
        if known is not None and known[1] == origin.TORCH and self._importing is None:
            return  # three of four events
        try:
            self._note(frame, event, argument)
        except Exception as error:  # what is raised here would be raised in the model
            log.debug("a call could not be looked at", exc_info=True)
            self.refuse(f"a call could not be looked at ({type(error).__name__}: {error})")

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._importing is not None:
            self._note_import(frame, event)
            return
        code = frame.f_code
        kind = self._kind_of(frame)
        if event == "call":
            if code is _FIND_AND_LOAD:
                self._importing = frame
            if code.co_name == "import_module" and _is_model(self._kinds, frame.f_back):
                self.refuse("it imports a module by a name that is no part of its code")
            if kind == origin.NEEDED and _is_model(self._kinds, frame.f_back):
                self.refuse(f"{code.co_qualname} of {frame.f_globals.get('__name__')} ran, which is not covered")
            if kind == origin.ASKING and self._is_for_model(frame.f_back):
                module = frame.f_globals.get("__name__")
                self.refuse(f"{_asker(self._kinds, frame)} calls {module}.{code.co_qualname}")
        elif event == "c_call" and kind != origin.TORCH:
            self._c_call(frame, kind, argument)

    def _kind_of(self, frame: FrameType) -> str:
        known = self._kinds.get(id(frame.f_code))
        return self._kind(frame) if known is None else known[1]

    def _kind(self, frame: FrameType) -> str:
        code = frame.f_code
        kind = origin.of_file(code.co_filename)
        if kind == origin.MODEL and code.co_filename.startswith("<"):
            name = str(frame.f_globals.get("__name__"))
            kind = origin.PYTHON if name.startswith("namedtuple_") else origin.of_module(name)
        elif (told := _ASKING.get(kind)) and told(str(frame.f_globals.get("__name__")), code.co_name):
            kind = origin.ASKING
        elif kind == origin.TORCH and code.co_filename.endswith(_AROUND):
            kind = origin.PYTHON
        self._kinds[id(code)] = (code, kind)
        if code.co_filename.endswith(_DYNAMO):
            self.refuse("torch._dynamo traces a part of it, whose code does not run")
        if kind == origin.MODEL:
            self.ran[id(code)] = (code, frame.f_globals)
            self._before.note(code, frame.f_globals)
        return kind

    def _c_call(self, frame: FrameType, kind: str, function: Any) -> None:
        if kind == origin.MODEL:
            owner = getattr(function, "__module__", None)
            if owner not in _C_OF_PYTHON and not origin.is_trusted_module(owner):
                self.refuse(f"a function of the C extension {owner} ran ({function.__qualname__})")
            elif owner is None and not _is_known(function):
                self.refuse(f"a function of a C extension ran ({function.__qualname__})")
        if asks(function, by_model=kind == origin.MODEL) and self._is_for_model(frame):
            self.refuse(f"{_asker(self._kinds, frame)} calls {function.__qualname__}")

    def _is_for_model(self, frame: FrameType | None) -> bool:
        """Say whether it is the model that calls, by itself or through Python's library."""
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            if name.partition(".")[0] in _SILENT or frame.f_code.co_name in _IMPORTS:
                return False
            kind = self._kind_of(frame)
            if kind not in {origin.PYTHON, origin.ASKING}:
                return kind == origin.MODEL
            frame = frame.f_back
        return False


def _is_known(function: Any) -> bool:
    """Say whether a method in C is of torch's or Python's objects."""
    owner = function.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    return any(_is_own(one) and (one is kind or function.__name__ in vars(one)) for one in kind.__mro__)


def _is_own(kind: type) -> bool:
    """Say whether a type is torch's or Python's: one of an extension in Rust can say that it is of ``builtins``."""
    return origin.is_trusted_module(kind.__module__) and not (kind.__module__ == "builtins" and kind.__flags__ & _HEAP)


def _is_model(kinds: dict[int, tuple[CodeType, str]], frame: FrameType | None) -> bool:
    known = kinds.get(id(frame.f_code)) if frame is not None else None
    return known is not None and known[1] == origin.MODEL


def _asker(kinds: dict[int, tuple[CodeType, str]], frame: FrameType | None) -> str:
    while frame is not None and not _is_model(kinds, frame):
        frame = frame.f_back
    return frame.f_code.co_qualname if frame is not None else "the model"


@contextmanager
def recorded(before: Before) -> Iterator[Recording]:
    """Record what runs meanwhile in this thread; the caller holds the lock of those who trace.

    Raises:
        Exception: whatever the body raises.
    """
    seen = Recording(before)
    if sys.getprofile() is not None:
        seen.refuse("another profiler is active")
        yield seen
        return
    drawn = _draws(seen)
    with _around_modules(seen), _around_operators(seen), _environment(seen):
        yield seen
    if _draws(seen) != drawn:
        seen.refuse("random numbers were drawn")


def _draws(seen: Recording) -> tuple[object, ...]:
    try:
        numpy = sys.modules.get("numpy")
        drawn = numpy.random.get_state(legacy=False) if numpy is not None else None
        return random.getstate(), str(drawn), torch.get_rng_state().tolist()
    except Exception as error:  # anything can be in their places
        log.debug("random numbers cannot be asked for", exc_info=True)
        seen.refuse(f"it cannot be told whether random numbers are drawn ({type(error).__name__}: {error})")
        return ()


@contextmanager
def _replaced(owner: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, made(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _around_modules(seen: Recording) -> Iterator[None]:
    """Have the recording told of all that modules do when they are called."""

    def made(call: Any) -> Any:
        def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            with seen.inside():
                return call(self, *args, **kwargs)

        if origin.is_trusted(call.__code__.co_filename):  # what another thread that describes its model takes it for
            called.__code__ = called.__code__.replace(co_qualname=call.__code__.co_qualname)
        return called

    with _replaced(torch.nn.Module, "_call_impl", made):
        yield


@contextmanager
def _around_operators(seen: Recording) -> Iterator[None]:
    """Have it told of nothing that torch does to trace one operator."""
    from torch.fx.experimental import proxy_tensor

    mode = getattr(proxy_tensor, "ProxyTorchDispatchMode", None)
    if mode is None or "__torch_dispatch__" not in vars(mode):
        yield
        return

    def made(dispatch: Any) -> Any:
        def dispatched(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with seen.outside():
                return dispatch(self, func, types, args, kwargs)

        return dispatched

    with _replaced(mode, "__torch_dispatch__", made):
        yield


@contextmanager
def _environment(seen: Recording) -> Iterator[None]:
    """Note which environment variables the model asks for, and what they are."""

    def made(get: Any) -> Any:
        def asked(self: Any, name: Any) -> Any:
            if isinstance(name, (str, bytes)) and seen.is_here and _by_model(sys._getframe(1)):
                seen.asked[os.fsdecode(name)] = _value(get, os.fsdecode(name))  # bytes are os.environb's
            return get(self, name)

        return asked

    def all_of(iterate: Any) -> Any:
        def asked(self: Any) -> Any:
            if seen.is_here and _by_model(sys._getframe(1)):
                seen.refuse("the whole environment is read")
            return iterate(self)

        return asked

    kind = os._Environ
    if type(os.environ) is not kind:
        seen.refuse("os.environ is another object than Python's")
        yield
        return
    with _replaced(kind, "__getitem__", made), _replaced(kind, "__iter__", all_of), _replaced(kind, "__len__", all_of):
        yield


def _value(get: Any, name: str) -> str | None:
    try:
        return str(get(os.environ, name))
    except KeyError:
        return None


def _by_model(frame: FrameType | None) -> bool:
    """Say whether the nearest code that is not Python's own is the model's."""
    while frame is not None:
        kind = origin.of_file(frame.f_code.co_filename)
        if kind == origin.MODEL and frame.f_code.co_filename.startswith("<"):
            kind = origin.of_module(str(frame.f_globals.get("__name__")))
        if kind != origin.PYTHON and frame.f_code.co_filename != __file__:
            return kind == origin.MODEL
        frame = frame.f_back
    return False

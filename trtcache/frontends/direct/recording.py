"""Recording of an export: the model's code that runs, and the values from outside that it reads.

A profiling function runs for every call, which is too expensive for all of torch. So it is enabled while modules of the
model run, and disabled while torch handles one operator, where no code of a model runs.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
from collections.abc import MutableMapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.frontends.direct import ownership
from trtcache.frontends.direct.addresses import find_created, shows_address
from trtcache.frontends.direct.classes import HEAP, WatchedRepr
from trtcache.frontends.direct.code import ALL, ALL_IN, joined_names
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import is_impure, is_impure_in_python, is_impure_in_torch
from trtcache.frontends.direct.patches import C_OF_PYTHON, registered_nodes
from trtcache.frontends.direct.refusals import ALLOWED_OF_LOGGERS, Refusals
from trtcache.frontends.direct.uses import Uses, absolute_name, is_text_or_number, uses
from trtcache.frontends.direct.writers import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from trtcache.frontends.direct.globals import Globals

log = logging.getLogger(__name__)

_DYNAMO = "_dynamo/symbolic_convert.py"
_IGNORED_CALLERS = ("logging", "warnings", "linecache", "traceback", "inspect", "tokenize")
_FIND_AND_LOAD: CodeType = sys.modules["_frozen_importlib"]._find_and_load.__code__
"""CPython runs this for modules that are not imported yet, and only for those."""

_IMPORTS = frozenset({"_find_and_load", "_handle_fromlist"})
_AROUND = ("/_compile.py", "/_dynamo/eval_frame.py", "/utils/_contextlib.py")
"""Files of torch with wrappers of other functions: ``torch.seed`` is called through two of them."""
_REFUSED_ARGUMENTS = {
    "catch_warnings.__init__": ("record", "it records warnings, which depend on filters"),
    "deepcopy": ("memo", "it passes a memo to deepcopy, which has addresses"),
}
"""Functions of Python's library with an argument that is refused, and why."""

_OF_CLASSES = frozenset(("vars", "__dict__", "dir", "getattr_static", "classify_class_attrs", "getmembers"))
_OF_CLASSES |= {"getmembers_static", "__dir__"}
"""Names that give access to the attributes of a class."""

_OUTPUTS = frozenset(one.__name__ for one in OUTPUTS)

_BY_TORCH = (
    *("__call__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__dir__", "__len__"),
    *("__bool__", "__iter__", "__eq__", "__hash__", "__getitem__", "__contains__", "train", "state_dict"),
    *("_named_members", "named_parameters", "parameters", "named_buffers", "buffers", "named_modules"),
    *("modules", "named_children", "children", "get_parameter", "get_buffer", "get_submodule", "_call_impl"),
    *("_wrapped_call_impl", "_save_to_state_dict"),
)
"""Methods of modules that torch.export calls by itself."""

IMPURE = "impure"
_IS_IMPURE = {ownership.PYTHON: is_impure_in_python, ownership.TORCH: is_impure_in_torch}


def _composed_names(code: CodeType, use: Uses, space: dict[str, Any]) -> list[str]:
    """Return what stands for the names that code puts together.

    Code of a library looks in its own module, in those that are globals of it, or in one of the user's.
    """
    if not ownership.file_is_installed(code.co_filename):
        return [ALL]
    modules = [ownership.module_with(space), *(space.get(name) for name in use.globals)]
    return [f"{ALL_IN}{vars(one)['__name__']}" for one in modules if isinstance(one, ModuleType)]


class Recording:
    """The record of one export.

    Attributes:
        globals: the globals that the model's code reads, described before it first runs.
        ran: code of the model that ran, by identity.
        environment: environment variables that were read, with their values.
        imported: modules that the model's code imports, in order; not those of torch, NumPy and Python.
        has_output: whether the model prints, warns or logs, so that other code handles the text.
        loggers: names of the loggers that it calls.
        refusals: the rules for the code that ran.
        why_not: the reason that the record is incomplete; empty if it is complete.
    """

    def __init__(self, met: Globals) -> None:
        """Create an empty record."""
        self.globals = met
        self.ran: dict[int, CodeType] = {}
        self.environment: dict[str, str | None] = {}
        self.imported: dict[str, None] = {}
        self.has_output = False
        self.loggers: dict[str, None] = {}
        self.why_not: str = ""
        self.refusals = Refusals()
        self._taken: set[tuple[str, str]] = set()
        self._kinds: dict[int, tuple[CodeType, str]] = {}
        self._quiet: set[int] = set()  # code of torch, which _kinds keeps alive
        self._profile = self._profiler()
        self._is_on = False
        self._importing: FrameType | None = None
        self._thread = threading.get_ident()
        self._described: set[type] = set()
        self._watched: list[type] = []
        self._is_watching = False
        self._lists_classes = False
        self._repr = WatchedRepr(self._note_text)

    @property
    def is_here(self) -> bool:
        """Whether this thread is the one that exports."""
        return threading.get_ident() == self._thread

    @property
    def is_profiling(self) -> bool:
        """Whether calls of this thread are noted now."""
        return self._is_on and self.is_here

    def set_why_not(self, why: str) -> None:
        """Set the reason that this export is refused, unless there is one."""
        self.why_not = self.why_not or why

    def refuse_missing_imports(self) -> None:
        """Refuse ``from package import name`` of a name that does not exist: a file of that name could be added.

        Raises:
            ValueError: there is one.
        """
        for full, name in self._taken:
            module = sys.modules.get(full)
            if module is not None and name != "*" and name not in vars(module) and f"{full}.{name}" not in sys.modules:
                raise ValueError(f"it tries to import {name} from {full}, which does not exist and could be added")

    def note_methods(self) -> None:
        """Treat methods that torch calls outside of a module's call, where nothing is recorded, as if they had run."""
        for cls in (*self.globals.walk.classes, *(cls for cls, _ in registered_nodes())):
            found = [vars(cls).get(name) for name in _BY_TORCH] if issubclass(cls, torch.nn.Module) else []
            if (node := pytree.SUPPORTED_NODES.get(cls)) is not None:
                found += [node.flatten_fn, node.unflatten_fn, node.flatten_with_keys_fn]
            for function in found:
                if type(function) is not FunctionType or ownership.file_is_versioned(function.__code__.co_filename):
                    continue
                if id(function.__code__) not in self.ran:
                    self._note_code(function.__code__, function.__globals__, {})

    def _note_code(self, code: CodeType, space: dict[str, Any], free: dict[str, Any]) -> None:
        """Describe the values that code of the model reads, before it runs for the first time."""
        use = uses(code)
        self.ran[id(code)] = code
        known = {**space, **free} if use.compares else {}
        if any(is_text_or_number(chain, known) for chain in use.compares):
            raise UnstableError("it compares strings or numbers by identity").below(code.co_qualname)
        self.refusals.check(code, use, space, self.globals.walk)
        if use.names & _OUTPUTS:
            self.has_output = True
        for name, level, taken in use.imports:
            full = absolute_name(name, level, space)
            if not ownership.is_versioned_module(full):
                self._taken.update((full, part) for part in taken)
            for end in (full, *(f"{full}.{one}" for one in use.names)):
                if end in sys.modules and not ownership.is_versioned_module(end):
                    self.imported[end] = None
                elif end in sys.modules:
                    self.globals.read_by_model[end] = None
        home = ownership.module_with(space)
        names = use.globals | {"__package__"} if any(level for _, level, _ in use.imports) else use.globals
        more = _composed_names(code, use, space) if use.composes else []
        with torch._C.DisableTorchFunction():
            self.globals.note(None if home is None else home.__name__, names, {*use.names, *use.texts, *more})
        self._watch_classes()
        self._stop_watching(code, use.names | use.texts, is_composing=ALL in more)
        for chain in use.chains:
            if (created := find_created(chain, space)) is not None:
                self._watch(created)

    @contextmanager
    def watch_texts(self) -> Iterator[None]:
        """Notice in a ``with`` block that code formats an object whose text has its address."""
        self._is_watching = True
        try:
            self._watch_classes()
            yield
        finally:
            self._is_watching = False  # code can be noted afterwards, where nothing would be put back
            self._put_back()

    def _put_back(self) -> None:
        for cls in self._watched:
            if type(vars(cls).get("__repr__")) is WatchedRepr:
                type.__delattr__(cls, "__repr__")

    def _is_composed(self) -> bool:
        """Return whether known texts can be joined to a name that gives access to a class."""
        texts = self.globals.walk.texts | self.globals.names
        return any(joined_names(_OF_CLASSES, texts))

    def _stop_watching(self, code: CodeType, names: frozenset[str], *, is_composing: bool) -> None:
        """Watch no class any more if code that is about to run could see what a recording has set on classes."""
        if ownership.file_is_installed(code.co_filename):
            names -= {"__dict__"}  # transformers reads that of each configuration
        if not (names & _OF_CLASSES or (is_composing and self._is_composed())):
            return
        self._lists_classes = True
        if self._watched:
            self._put_back()
            self._refuse_watched(code.co_qualname)

    def _refuse_watched(self, name: str) -> None:
        self.set_why_not(f"{name} can read what is in a class, where a recording notices its objects' texts")

    def _watch_classes(self) -> None:
        """Watch the classes that were described since the last time."""
        classes = self.globals.walk.classes
        for cls in classes if len(classes) != len(self._described) else ():
            if cls not in self._described and shows_address(cls):
                self._watch(cls)
        self._described = {*classes}

    def _watch(self, cls: type) -> None:
        if self._is_watching and cls is not object and type(vars(cls).get("__repr__")) is not WatchedRepr:
            if self._lists_classes:
                self._refuse_watched("code of the model")
                return
            self._watched.append(cls)
            type.__setattr__(cls, "__repr__", self._repr)

    def _note_text(self, kind: type, frame: FrameType) -> None:
        if self.is_profiling or (self.is_here and _by_model(frame)):
            self.set_why_not(
                f"{self._caller_in_model(frame)} formats a {kind.__qualname__}, whose text has its address"
            )

    def on(self) -> None:
        """Install the profiler."""
        self._is_on = True
        sys.setprofile(self._profile)

    def off(self) -> None:
        """Remove the profiler."""
        sys.setprofile(None)
        self._is_on = False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Profile the call of a module."""
        if self._is_on or not self.is_here or sys.getprofile() is not None:
            yield
            return
        self.on()
        try:
            yield
        finally:
            self.off()

    def _note_import(self, frame: FrameType, event: str) -> None:
        """Record a module after its import; the code that ran for the import itself is not part of the export."""
        if event != "return" or frame is not self._importing:
            return
        self._importing, name = None, frame.f_locals["name"]
        if name not in sys.modules and self._is_for_model(frame.f_back):
            self.set_why_not(f"it tries to import {name}, which does not exist and could be installed")
        if name in sys.modules and not ownership.is_versioned_module(name):
            self.imported[name] = None
        elif ownership.module_owner(name) == ownership.PYTHON and self._is_for_model(frame.f_back):
            self.set_why_not(f"it imports {name} of Python's library, which a file of that name can shadow")

    def _profiler(self) -> Callable[[FrameType, str, Any], None]:
        quiet = self._quiet

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if id(frame.f_code) in quiet:  # three quarters of all events
                return
            if event in {"call", "c_call"} or self._importing is not None:
                try:
                    self._note(frame, event, argument)
                except UnstableError as error:
                    self.set_why_not(str(error))
                except Exception as error:  # an exception here would be raised in the model
                    log.debug("a call could not be recorded", exc_info=True)
                    self.set_why_not(f"a call could not be recorded ({type(error).__name__}: {error})")

        return profile

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._importing is not None:
            self._note_import(frame, event)
            return
        code = frame.f_code
        kind = self._kind_of(frame)
        if event == "call":
            if code is _FIND_AND_LOAD:
                self._importing = frame
            if code.co_name == "import_module" and self._is_model(frame.f_back):
                self.set_why_not("it imports a module by a name that is not in its code")
            if kind == ownership.NEEDED and self._is_model(frame.f_back):
                self.set_why_not(f"{code.co_qualname} of {frame.f_globals.get('__name__')} ran, which is not covered")
            if (
                code.co_filename == logging.__file__
                and code.co_name in ALLOWED_OF_LOGGERS
                and self._is_for_model(frame.f_back)
            ):
                self._note_logging(frame)
            given, why = _REFUSED_ARGUMENTS.get(code.co_qualname, ("", ""))
            if given and frame.f_locals.get(given) not in (None, False) and self._is_for_model(frame.f_back):
                self.set_why_not(why)
            if kind == IMPURE and self._is_for_model(frame.f_back):
                module = frame.f_globals.get("__name__")
                self.set_why_not(f"{self._caller_in_model(frame)} calls {module}.{code.co_qualname}")
        elif event == "c_call" and kind != ownership.TORCH:
            self._c_call(frame, kind, argument)

    def _kind_of(self, frame: FrameType) -> str:
        known = self._kinds.get(id(frame.f_code))
        return self._kind(frame) if known is None else known[1]

    def _kind(self, frame: FrameType) -> str:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        kind = ownership.file_owner(code.co_filename)
        if kind == ownership.MODEL and code.co_filename.startswith("<"):
            if module.startswith("namedtuple_"):  # the constructor of a named tuple: it is its class's
                module = str(getattr(frame.f_locals.get("_cls"), "__module__", module))
            kind = ownership.module_owner(module)
        if kind in {ownership.TORCH, ownership.PYTHON}:
            self._note_versioned(module, {*code.co_names})
            self.globals.versioned[module].add(code.co_qualname)
        if (is_impure_here := _IS_IMPURE.get(kind)) and is_impure_here(module, code.co_name):
            kind = IMPURE
        elif kind == ownership.TORCH and code.co_filename.endswith(_AROUND):
            kind = ownership.PYTHON  # so that the caller behind the wrapper is looked for
        self._kinds[id(code)] = (code, kind)
        if kind == ownership.TORCH:
            self._quiet.add(id(code))
        if code.co_filename.endswith(_DYNAMO):
            self.set_why_not("torch._dynamo traces a part of it, which does not run")
        if kind == ownership.MODEL:
            free = {name: frame.f_locals.get(name, "") for name in code.co_freevars}
            self._note_code(code, frame.f_globals, free)
        return kind

    def _note_logging(self, frame: FrameType) -> None:
        """Record a call of a logger; whether the arguments are formatted depends on levels, which are not compared."""
        values = frame.f_locals
        logger = values.get("self", logging.root)  # logging.warning is the root's
        while isinstance(logger, logging.LoggerAdapter):
            logger = logger.logger
        self.loggers[logger.name] = None
        if logging.getLogger(logger.name) is not logger:
            self.set_why_not(f"it calls logger {logger.name}, which cannot be found by its name")
        pending = [value for name, value in values.items() if name != "self"]
        seen: set[int] = set()  # a list can contain itself
        while pending:
            value = pending.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, (list, tuple)):
                pending += value
            elif isinstance(value, dict):
                pending += [*value, *value.values()]
            home = str(type(value).__module__)
            if ownership.is_user_module(home):
                self.set_why_not(f"it logs an object of its own class ({type(value).__qualname__})")

    def _note_versioned(self, module: str, names: set[str]) -> None:
        """Record names that code of torch or Python looks up in its module, and in the modules that it finds there."""
        known = self.globals.versioned.setdefault(module, set())
        if names <= known:
            return
        known |= names
        space = vars(sys.modules[module]) if module in sys.modules else {}
        for name in names & space.keys():
            value = space[name]
            if isinstance(value, ModuleType) and ownership.is_versioned_module(
                label := str(vars(value).get("__name__"))
            ):
                self._note_versioned(label, names)

    def _c_call(self, frame: FrameType, kind: str, function: Any) -> None:
        if kind == ownership.MODEL:
            owner = getattr(function, "__module__", None)
            if owner not in C_OF_PYTHON and not ownership.is_versioned_module(owner):
                self.set_why_not(f"a function of the C extension {owner} ran ({function.__qualname__})")
            elif owner is None and not _is_known(function):
                self.set_why_not(f"a function of a C extension ran ({function.__qualname__})")
        if function in OUTPUTS and self._is_for_model(frame):
            self.has_output = True
        if is_impure(function, by_model=kind == ownership.MODEL) and self._is_for_model(frame):
            self.set_why_not(f"{self._caller_in_model(frame)} calls {function.__qualname__}")

    def _is_model(self, frame: FrameType | None) -> bool:
        known = self._kinds.get(id(frame.f_code)) if frame is not None else None
        return known is not None and known[1] == ownership.MODEL

    def _caller_in_model(self, frame: FrameType | None) -> str:
        while frame is not None and not self._is_model(frame):
            frame = frame.f_back
        return frame.f_code.co_qualname if frame is not None else "the model"

    def _is_for_model(self, frame: FrameType | None) -> bool:
        """Return whether the model is the caller, directly or through Python's library."""
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            if name.partition(".")[0] in _IGNORED_CALLERS or frame.f_code.co_name in _IMPORTS:
                return False
            kind = self._kind_of(frame)
            if kind not in {ownership.PYTHON, IMPURE}:
                return kind == ownership.MODEL
            frame = frame.f_back
        return False


def _is_known(function: Any) -> bool:
    """Return whether a method in C is of a type of torch or Python."""
    owner = function.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    return any(_is_versioned_type(base) and (base is kind or function.__name__ in vars(base)) for base in kind.__mro__)


def _is_versioned_type(kind: type) -> bool:
    """Return whether a type is torch's or Python's; types of Rust extensions can claim to be of ``builtins``."""
    return ownership.is_versioned_module(kind.__module__) and not (
        kind.__module__ == "builtins" and kind.__flags__ & HEAP
    )


@contextmanager
def record_export(met: Globals) -> Iterator[Recording]:
    """Record the code that this thread runs in the body; the caller holds the tracing lock."""
    seen = Recording(met)
    if sys.getprofile() is not None:
        seen.set_why_not("another profiler is active")
        yield seen
        return
    drawn = _generator_states(seen)
    with _around_modules(seen), _around_operators(seen), _environment(seen), seen.watch_texts():
        yield seen
    if _generator_states(seen) != drawn:
        seen.set_why_not("random numbers were drawn")


def _generator_states(seen: Recording) -> tuple[object, ...]:
    try:
        numpy = sys.modules.get("numpy")
        drawn = numpy.random.get_state(legacy=False) if numpy is not None else None
        return random.getstate(), str(drawn), torch.get_rng_state().tolist()
    except Exception as error:  # the generators can be replaced by anything
        log.debug("the state of random number generators cannot be read", exc_info=True)
        seen.set_why_not(f"the state of random number generators cannot be read ({type(error).__name__}: {error})")
        return ()


@contextmanager
def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _around_modules(seen: Recording) -> Iterator[None]:
    """Profile the calls of modules."""
    import torch._dynamo.utils  # keeps what is there when an export imports it

    def wrap(call: Any) -> Any:
        def call_and_profile(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            with seen.inside():
                return call(self, *args, **kwargs)

        if ownership.file_is_versioned(call.__code__.co_filename):  # another thread describes it as torch's
            call_and_profile.__code__ = call_and_profile.__code__.replace(
                co_qualname=call.__code__.co_qualname, co_firstlineno=call.__code__.co_firstlineno
            )
        return call_and_profile

    with _replace(torch.nn.Module, "_call_impl", wrap):
        yield


@contextmanager
def _around_operators(seen: Recording) -> Iterator[None]:
    """Pause the profiler while torch traces an operator."""
    from torch.fx.experimental import proxy_tensor

    mode = getattr(proxy_tensor, "ProxyTorchDispatchMode", None)
    if mode is None or "__torch_dispatch__" not in vars(mode):
        yield
        return

    def wrap(dispatch: Any) -> Any:
        def dispatch_unprofiled(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not seen.is_profiling:
                return dispatch(self, func, types, args, kwargs)
            seen.off()
            try:
                return dispatch(self, func, types, args, kwargs)
            finally:
                seen.on()

        return dispatch_unprofiled

    with _replace(mode, "__torch_dispatch__", wrap):
        yield


class _Variables(MutableMapping[Any, Any]):
    """The data of ``os.environ`` during a recording: notes the variables that the model reads, however it does.

    Attributes:
        data: the real data.
    """

    def __init__(self, data: dict[Any, Any], seen: Recording) -> None:
        self.data, self._seen = data, seen

    def __getitem__(self, name: Any) -> Any:
        if self._is_read():
            self._seen.environment[os.fsdecode(name)] = os.fsdecode(self.data[name]) if name in self.data else None
        return self.data[name]

    def __setitem__(self, name: Any, value: Any) -> None:
        self.data[name] = value

    def __delitem__(self, name: Any) -> None:
        del self.data[name]

    def __iter__(self) -> Iterator[Any]:
        self._note_all()
        return iter([*self.data])  # as in os.environ itself: another thread may set a variable meanwhile

    def __len__(self) -> int:
        self._note_all()
        return len(self.data)

    def _note_all(self) -> None:
        if self._is_read():
            self._seen.set_why_not("the whole environment is read")

    def _is_read(self) -> bool:
        return self._seen.is_here and _by_model(sys._getframe(1))


@contextmanager
def _environment(seen: Recording) -> Iterator[None]:
    """Record the environment variables that the model reads, with their values."""
    if type(os.environ) is not os._Environ or type(data := vars(os.environ).get("_data")) is not dict:
        seen.set_why_not("os.environ was replaced")
        yield
        return
    both = [vars(os.environ), vars(os.environb)] if os.supports_bytes_environ else [vars(os.environ)]
    for held in both:
        held["_data"] = _Variables(data, seen)
    try:
        yield
    finally:
        for held in both:
            held["_data"] = data


def _by_model(frame: FrameType | None) -> bool:
    """Return whether the nearest caller outside of Python's library is the model."""
    while frame is not None:
        kind = ownership.file_owner(frame.f_code.co_filename)
        if kind == ownership.MODEL and frame.f_code.co_filename.startswith("<"):
            kind = ownership.module_owner(str(frame.f_globals.get("__name__")))
        if kind != ownership.PYTHON and frame.f_code.co_filename != __file__:
            return kind == ownership.MODEL
        frame = frame.f_back
    return False

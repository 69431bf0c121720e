"""What a function in C may be: one that answers by its arguments alone, and not by the process, the machine or a clock.

Of Python's own library those that do are named, by their modules, and all others are taken to ask. Of torch and NumPy,
whose functions are thousands, those that ask are named.
"""

from __future__ import annotations

import functools
import random
from types import ModuleType
from typing import Any

from trtcache.frontends.direct.origin import module_owner

_CLOCKS = frozenset(
    (
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
        *("process_time_ns", "thread_time", "localtime", "gmtime", "now", "utcnow", "today", "urandom", "getrandom"),
        *("fromtimestamp", "astimezone", "timestamp"),  # by the machine's time zone
        *("random", "getrandbits", "seed", "getpid", "getppid", "gethostname", "getuid", "uname", "getcwd"),
    )
)
_ASKS = _CLOCKS | frozenset(
    (
        *("open", "read", "fromfile", "from_file", "getcontext", "initial_seed", "get_rng_state", "default_rng"),
        *("eval", "exec", "compile", "globals", "locals", "input", "id", "hash", "breakpoint", "__import__"),
        *("__subclasses__", "__sizeof__", "__dir__", "__reduce_ex__", "__hash__", "get_all_records", "get_record"),
        *("get_state", "graphsafe_get_state", "_get_cpu_capability", "_cuda_getDevice", "_cuda_getDeviceCount"),
    )
)
_OF_BUILTINS = frozenset(
    ("__import__", "open", "eval", "exec", "compile", "globals", "locals", "input", "id", "hash", "breakpoint", "dir")
)
_PURE = frozenset(
    (
        *("_abc", "_bisect", "_collections", "_contextvars", "_datetime", "_decimal", "_functools"),
        *("_heapq", "_imp", "_json", "_operator", "_sre", "_statistics", "_string", "_struct", "_typing", "_warnings"),
        *("_weakref", "binascii", "cmath", "collections", "contextvars", "datetime", "decimal", "functools"),
        *("itertools", "math", "operator", "re", "types", "typing", "unicodedata", "weakref", "zlib"),
    )
)
"""Modules of Python's library in C whose functions ask nothing, and whose objects answer by what they hold."""

_ALLOWED = {
    "_thread": frozenset({"allocate_lock", "RLock", "acquire", "release", "__enter__", "__exit__"}),
    "sys": frozenset({"audit", "exc_info", "intern", "is_finalizing", "exception"}),
    "posix": frozenset({"fspath"}),
    "marshal": frozenset({"dumps", "loads"}),
    "io": frozenset({"text_encoding"}),
    "_io": frozenset({"getvalue", "write", "close", "tell", "seek", "getbuffer", "text_encoding"}),
}
_BY_LIBRARY = frozenset({"id", "hash", "get_ident", "_getframe", "__reduce_ex__", "__hash__", "getrefcount"})
"""Asked by Python's library for purposes of its own: ``copy`` and ``reprlib`` remember by them what they have met."""

_LIBRARY = frozenset(
    (
        *("abc", "bisect", "collections", "contextlib", "contextvars", "copy", "dataclasses", "datetime", "decimal"),
        *("enum", "fractions", "functools", "functorch", "genericpath", "heapq", "importlib", "inspect", "keyword"),
        *("linecache", "logging", "ntpath", "numbers", "numpy", "operator", "os", "pathlib", "posixpath", "re"),
        *("sre_compile", "sre_parse", "statistics", "string", "struct", "textwrap", "token", "tokenize", "torchgen"),
        *("traceback", "types", "typing", "warnings", "weakref", "_collections_abc", "_weakrefset", "threading"),
        *("_py_abc", "typing_extensions"),
    )
)
"""Modules of Python's library that answer by their arguments, or that ask by functions in C, which are seen."""

_REMEMBERS = {
    "typing": ("get_type_hints",),
    "typing_extensions": ("get_type_hints",),
    "inspect": (
        *("getsource", "getfile", "getsourcelines", "getsourcefile", "getdoc", "getcomments", "getmodule"),
        *("getmembers", "getmembers_static"),
    ),
    "logging": ("getLogger", "hasHandlers", "getHandlerByName", "makeLogRecord", "makeRecord", "__init__"),
    "threading": ("current_thread", "active_count", "enumerate", "main_thread", "gettrace", "getprofile"),
}
_MODULES_OF_TORCH = (
    *("torch.accelerator", "torch.backends.cpu", "torch.cpu", "torch.cuda", "torch.distributed", "torch.hub"),
    *("torch.jit._serialization", "torch.mps", "torch.mtia", "torch.multiprocessing", "torch.package", "torch.random"),
    *("torch.serialization", "torch.utils.collect_env", "torch.utils.data", "torch.xpu"),
)
"""Modules of torch whose functions ask by functions in C: what is called in torch's code is not looked at."""

_OF_TORCH = {
    "torch.backends.cudnn": ("version",),
    "torch.storage": ("from_file",),
    "torch._ops": ("load_library",),
    "torch._classes": ("load_library",),
}
"""Functions that ask, in modules of torch of which the others do not."""

_KNOWN_OF_TORCH = {
    "torch.accelerator": ("is_available", "current_accelerator"),
    "torch.cuda": ("is_available", "_is_compiled"),
    "torch.cuda.graphs": ("is_current_stream_capturing",),
    "torch.distributed": ("is_available",),
    "torch.distributed.distributed_c10d": ("is_initialized",),
    "torch.mps": ("is_available",),
    "torch.mtia": ("is_available",),
    "torch.xpu": ("is_available", "is_current_stream_capturing"),
    "torch.xpu.graphs": ("is_current_stream_capturing",),
}
"""Of the modules that ask, functions whose answers are in the key, or the same in every export by a torch's build."""

_AUTOCAST = ("torch.cuda.amp", "torch.cpu.amp", "torch.xpu.amp", "torch.cuda.nvtx")
_FRAMES = ("stack", "currentframe", "trace", "getinnerframes", "getouterframes", "getframeinfo", "findsource")
_OF_LIBRARY = frozenset({"linecache", "tokenize", "traceback"})


def asks(function: Any, *, by_model: bool = True) -> bool:
    """Say whether a function in C asks for more than its arguments.

    Args:
        function: a function or a bound method in C.
        by_model: whether it is the model's own code that calls it, not Python's library for it.
    """
    owner, name = function.__self__, function.__name__
    if not by_model and name in _BY_LIBRARY:
        return False
    if isinstance(owner, ModuleType):
        return _asks_module_owner(owner.__name__, name)
    return isinstance(owner, random.Random) or _asks_of_kind(owner if isinstance(owner, type) else type(owner), name)


@functools.lru_cache(maxsize=4096)
def _asks_module_owner(module: str, name: str) -> bool:
    if module == "builtins":
        return name in _OF_BUILTINS
    if module in _PURE:
        return False
    if module in _ALLOWED:
        return name not in _ALLOWED[module]
    return _is_of_python(module) or name in _ASKS


@functools.lru_cache(maxsize=4096)
def _asks_of_kind(kind: type, name: str) -> bool:
    """Say whether a method of objects of a type asks for more than they hold."""
    module = _home(kind, name)
    if module == "builtins" or module in _PURE:
        return name in _ASKS - {"read", "open", "random", "compile"}
    if module in _ALLOWED:
        return name not in _ALLOWED[module]
    return _is_of_python(module) or name in _ASKS


def _is_of_python(module: str) -> bool:
    """Say whether a module in C is of Python's own library, of which those that ask nothing are known."""
    top = module.partition(".")[0]
    return top not in {"numpy", "torch"} and module_owner(top) == "python"


def _home(kind: type, name: str) -> str:
    """Return the module of the type that has a method, for a class of the model's may only have inherited it."""
    return next((str(one.__module__) for one in kind.__mro__ if name in vars(one)), str(kind.__module__))


def is_asking(module: str, name: str) -> bool:
    """Say whether a function in Python of Python's library could answer by more than its arguments."""
    top = module.partition(".")[0]
    if top not in _LIBRARY:
        return True
    if top == "inspect" and name in _FRAMES:
        return True
    return top in _OF_LIBRARY or name in _REMEMBERS.get(top, ())


def is_asking_of_torch(module: str, name: str) -> bool:
    """Say whether a function in Python of torch could answer by the machine, the process, a file or a seed."""
    if f"{module}.".startswith(tuple(f"{one}." for one in _MODULES_OF_TORCH)):
        return name not in _KNOWN_OF_TORCH.get(module, ()) and not module.startswith(_AUTOCAST)
    return name in _OF_TORCH.get(module, ())

"""Ownership of code, and which functions depend on more than their arguments.

Code of torch, NumPy, Python and trtcache is *versioned*: its version stands for it. All other code is the model's
and is compared. A function is "impure" if it depends on the process, the machine or a clock. For functions in C of
Python's library, the pure modules are listed and all others are impure. Of torch and NumPy, which have thousands of
functions, the impure ones are listed.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

_NEEDED_BY_TORCH = frozenset(
    ("_distutils_hack", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "pkg_resources")
) | {"setuptools", "sympy", "triton"}
"""Distributions that torch imports and runs when it exports. Models that call them directly are not covered."""

_SITES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_PYTHON = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # compared with names of files as they are in code
_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120
OURS = str(Path(__file__).parents[2]) + os.sep

TORCH, PYTHON, NEEDED, MODEL = "torch", "python", "needed", "model"


@functools.lru_cache(maxsize=16384)
def file_owner(filename: str) -> str:
    """Return the owner of a file's code; code without a file, such as ``<string>``, is the model's."""
    if filename.startswith((_TORCH, OURS, "<eval_with_key>")):
        return TORCH
    if filename.startswith("<frozen "):
        return PYTHON
    for site in _SITES:
        _, match, below = filename.partition(site)
        if match:
            top = below.partition(os.sep)[0].removesuffix(".py")
            known = {"numpy": PYTHON, "typing_extensions": PYTHON, "functorch": TORCH, "torchgen": TORCH}
            return known.get(top) or (NEEDED if top in _NEEDED_BY_TORCH else MODEL)
    return PYTHON if filename.startswith(_PYTHON) else MODEL


def file_is_versioned(filename: str) -> bool:
    """Return whether a file is of torch, NumPy, Python or trtcache, whose versions stand for their code."""
    return file_owner(filename) in {TORCH, PYTHON}


def module_owner(name: str) -> str:
    """Return the owner of a loaded module, by its file: a model's module can have the name of one of Python's."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if isinstance(file, str):  # torch.ops calls its file _ops.py
        return file_owner(file) if os.sep in file or name.partition(".")[0] != "torch" else TORCH
    if getattr(getattr(module, "__spec__", None), "origin", None) in {"built-in", "frozen"}:
        return PYTHON
    is_in_c = file is None and name.startswith(("torch._C", "torch._VF", "torch.ops", "torch.classes", "torch.cuda."))
    return TORCH if module is not None and is_in_c else MODEL


def is_versioned_module(name: object) -> bool:
    """Return whether a module is of torch, NumPy, Python or trtcache, whose versions stand for their code."""
    return isinstance(name, str) and module_owner(name) in {TORCH, PYTHON}


def module_with(namespace: dict[str, Any]) -> ModuleType | None:
    """Return the module whose namespace is a function's globals, or None."""
    module = sys.modules.get(str(namespace.get("__name__")))
    return module if module is not None and getattr(module, "__dict__", None) is namespace else None


def is_in_its_module(function: FunctionType) -> bool:
    """Return whether a function looks names up in the module of its name, which torch may have put inside another."""
    space = function.__globals__
    known = getattr(sys.modules.get(str(space.get("__name__"))), "__dict__", {})
    return known is space or getattr(known.get("m"), "__dict__", None) is space


def lookup(module: str, qualname: str) -> object:
    """Return the value of a qualified name in a module, or None; nothing is imported."""
    value: object = sys.modules.get(module)
    for step in qualname.split("."):
        try:
            value = vars(value)[step]
        except (KeyError, TypeError):
            return None
    return value


def file_is_installed(filename: str) -> bool:
    """Return whether a file is of an installed distribution."""
    return any(site in filename for site in _SITES)


def is_installed(name: object) -> bool:
    """Return whether a module is of an installed distribution."""
    return file_is_installed(str(getattr(sys.modules.get(str(name)), "__file__", None)))


def is_user_module(name: object) -> bool:
    """Return whether a module is of the user's own files: neither versioned nor of another installed distribution."""
    return not is_versioned_module(name) and not is_installed(name)


def is_user_code(value: object) -> bool:
    """Return whether a function or a method, or the class of another object, is of the user's own files."""
    function = getattr(value, "__func__", value)
    if type(function) is FunctionType:
        filename = function.__code__.co_filename
        return file_owner(filename) == MODEL and not file_is_installed(filename)
    return is_user_module(type(function).__module__)


_CLOCKS = frozenset(
    (
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
        *("process_time_ns", "thread_time", "localtime", "gmtime", "now", "utcnow", "today", "urandom", "getrandom"),
        *("fromtimestamp", "astimezone", "timestamp"),  # by the machine's time zone
        *("random", "getrandbits", "seed", "getpid", "getppid", "gethostname", "getuid", "uname", "getcwd"),
    )
)
_IMPURE = _CLOCKS | frozenset(
    (
        *("open", "read", "fromfile", "from_file", "getcontext", "initial_seed", "get_rng_state", "default_rng"),
        *("eval", "exec", "compile", "globals", "locals", "input", "id", "hash", "breakpoint", "__import__"),
        *("__subclasses__", "__sizeof__", "__dir__", "__reduce_ex__", "__hash__", "get_all_records", "get_record"),
        *("get_state", "graphsafe_get_state", "_get_cpu_capability", "_cuda_getDevice", "_cuda_getDeviceCount"),
    )
)
_IMPURE_BUILTINS = frozenset(
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
"""C modules of Python's library whose functions and methods are pure."""

_ALLOWED = {
    "_thread": frozenset({"allocate_lock", "RLock", "acquire", "release", "__enter__", "__exit__"}),
    "sys": frozenset({"audit", "exc_info", "intern", "is_finalizing", "exception"}),
    "posix": frozenset({"fspath"}),
    "marshal": frozenset({"dumps", "loads"}),
    "io": frozenset({"text_encoding"}),
    "_io": frozenset({"getvalue", "write", "close", "tell", "seek", "getbuffer", "text_encoding"}),
}
_BY_LIBRARY = frozenset({"id", "hash", "get_ident", "_getframe", "__reduce_ex__", "__hash__", "getrefcount"})
"""Functions that Python's library calls internally: ``copy`` and ``reprlib`` use them to remember visited objects."""

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
"""Modules of Python's library that are pure, or impure only through functions in C, which are recorded."""

_IMPURE_IN_LIBRARY = {
    "typing": ("get_type_hints",),
    "typing_extensions": ("get_type_hints",),
    "inspect": (
        *("getsource", "getfile", "getsourcelines", "getsourcefile", "getdoc", "getcomments", "getmodule"),
        *("getmembers", "getmembers_static"),
    ),
    "importlib": ("find_spec",),  # it finds any module that is loaded
    "logging": ("getLogger", "hasHandlers", "getHandlerByName", "makeLogRecord", "makeRecord", "__init__"),
    "_weakrefset": ("__iter__", "pop"),  # in an order by addresses
    "threading": ("current_thread", "active_count", "enumerate", "main_thread", "gettrace", "getprofile"),
}
_IMPURE_MODULES_OF_TORCH = (
    *("torch.accelerator", "torch.backends.cpu", "torch.cpu", "torch.cuda", "torch.distributed", "torch.hub"),
    *("torch.jit._serialization", "torch.mps", "torch.mtia", "torch.multiprocessing", "torch.package", "torch.random"),
    *("torch.serialization", "torch.utils.collect_env", "torch.utils.data", "torch.xpu"),
)
"""Modules of torch that are impure through functions in C: calls inside torch's code are not recorded."""

_IMPURE_IN_TORCH = {
    "torch.backends.cudnn": ("version",),
    "torch.storage": ("from_file",),
    "torch._ops": ("load_library",),
    "torch._classes": ("load_library",),
}
"""Impure functions in otherwise pure modules of torch."""

_PURE_IN_TORCH = {
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
"""Functions in impure modules whose results are in the key, or the same in every export of a torch build."""

_AUTOCAST = ("torch.cuda.amp", "torch.cpu.amp", "torch.xpu.amp", "torch.cuda.nvtx")
_FRAMES = ("stack", "currentframe", "trace", "getinnerframes", "getouterframes", "getframeinfo", "findsource")
_IMPURE_MODULES_OF_LIBRARY = frozenset({"linecache", "tokenize", "traceback"})


def is_impure(function: Any, *, by_model: bool = True) -> bool:
    """Return whether a function in C depends on more than its arguments.

    Args:
        function: a function or a bound method in C.
        by_model: whether the model's own code calls it, not Python's library on its behalf.
    """
    owner, name = function.__self__, function.__name__
    if not by_model and name in _BY_LIBRARY:
        return False
    if isinstance(owner, ModuleType):
        return _is_impure_in_module(owner.__name__, name)
    kind = owner if isinstance(owner, type) else type(owner)
    return isinstance(owner, random.Random) or _is_impure_method(_home(kind, name), name)


@functools.lru_cache(maxsize=4096)
def _is_impure_in_module(module: str, name: str) -> bool:
    if module == "builtins":
        return name in _IMPURE_BUILTINS
    if module in _PURE:
        return name == "copy_context"  # all context variables
    if module in _ALLOWED:
        return name not in _ALLOWED[module]
    return _is_of_python(module) or name in _IMPURE


@functools.lru_cache(maxsize=4096)
def _is_impure_method(module: str, name: str) -> bool:
    """Return whether a method that a class of a module defines depends on more than its object and arguments."""
    if module == "builtins" or module in _PURE:
        return name in _IMPURE - {"read", "open", "random", "compile"}
    if module in _ALLOWED:
        return name not in _ALLOWED[module]
    return _is_of_python(module) or name in _IMPURE


def _is_of_python(module: str) -> bool:
    """Return whether a module in C is of Python's own library."""
    top = module.partition(".")[0]
    return top not in {"numpy", "torch"} and module_owner(top) == "python"


def _home(kind: type, name: str) -> str:
    """Return the module of the base class that defines a method."""
    return next((str(base.__module__) for base in kind.__mro__ if name in vars(base)), str(kind.__module__))


def is_impure_in_python(module: str, name: str) -> bool:
    """Return whether a Python function of Python's library may depend on more than its arguments."""
    top = module.partition(".")[0]
    if top not in _LIBRARY:
        return True
    if top == "inspect" and name in _FRAMES:
        return True
    return top in _IMPURE_MODULES_OF_LIBRARY or name in _IMPURE_IN_LIBRARY.get(top, ())


def is_impure_in_torch(module: str, name: str) -> bool:
    """Return whether a Python function of torch may depend on the machine, the process, a file or a seed."""
    if f"{module}.".startswith(tuple(f"{impure}." for impure in _IMPURE_MODULES_OF_TORCH)):
        return name not in _PURE_IN_TORCH.get(module, ()) and not module.startswith(_AUTOCAST)
    return name in _IMPURE_IN_TORCH.get(module, ())

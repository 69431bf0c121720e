"""State of the process that an export depends on: torch's flags, modes and configuration, and changes to torch."""

from __future__ import annotations

import copy
import copyreg
import functools
import gc
import locale
import logging
import os
import re
import sys
import warnings
from logging import Logger, LogRecord
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trtcache.digests import Digest, hash_bytes
from trtcache.frontends.direct.classes import FUNCTION_TYPES, PLAIN, full_name
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import (
    file_is_versioned,
    is_installed,
    is_user_code,
    is_user_module,
    is_versioned_module,
    lookup,
)
from trtcache.frontends.direct.patches import describe_changes, patched_methods, registered_nodes
from trtcache.keys.key import process_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trtcache.digests import Json
    from trtcache.frontends.direct.walk import Walk

log = logging.getLogger(__name__)

_FLAGS = (
    *("backends.cuda.matmul.allow_tf32", "backends.opt_einsum.enabled", "backends.opt_einsum.strategy"),
    *("backends.quantized.engine", "utils.deterministic.fill_uninitialized_memory"),
    *(f"backends.cuda.matmul.allow_{one}_reduced_precision_reduction" for one in ("fp16", "bf16")),
    "backends.cuda.matmul.allow_fp16_accumulation",
    *(f"backends.{one}.fp32_precision" for one in ("cuda.matmul", "cudnn.conv", "cudnn.rnn")),
    *(f"backends.mkldnn.{one}.fp32_precision" for one in ("matmul", "conv", "rnn")),
)
_FUNCTIONS = (
    *("is_grad_enabled", "is_inference_mode_enabled", "is_deterministic_algorithms_warn_only_enabled"),
    *("get_float32_matmul_precision", "is_autocast_cache_enabled", "get_num_threads", "is_anomaly_enabled"),
    *("__future__.get_overwrite_module_params_on_conversion", "__future__.get_swap_module_params_on_conversion"),
    *("_C._autograd._profiler_enabled", "_C._autograd._saved_tensors_hooks_is_enabled", "is_vulkan_available"),
    *("backends.mha.get_fastpath_enabled", "get_num_interop_threads", "is_warn_always_enabled"),
    *("distributed.is_available", "distributed.is_initialized"),
    *("backends.cuda.fp16_bf16_reduction_math_sdp_allowed", "_C._get_overrideable_sdp_enabled"),
    *("_C._get_privateuse1_backend_name", "_C.is_anomaly_check_nan_enabled"),
    *("_C._check_sparse_tensor_invariants", "onnx.is_in_onnx_export", "backends.flags_frozen"),
)
_AUTOCAST = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "maia", "xla", "ipu", "privateuseone")
CONFIGURATION = "ConfigModuleInstance"  # torch.utils._config_module makes classes of this name
_NOT_FOR_EXPORTS = ("TORCHINDUCTOR_", "TORCH_HOME", "TORCH_LOGS", "TORCH_TRACE", "TORCH_SHOW", "TORCH_EXTENSIONS")
_SCANNED = ("torch", "torch.nn.functional", "torch.functional", "torch.nn.init", "torch._C._nn", "math", "builtins")


def surroundings(walk: Walk) -> dict[str, Json]:
    """Describe the state of the process that an export depends on."""
    _refuse_audit_hooks()
    _refuse_modes()
    _refuse_other_patterns()
    _settle_attention_order()
    modules = [pair for pair in sys.modules.copy().items() if type(pair[1]) is not ModuleType]
    state: dict[str, Any] = {name: str(_value_at(name)) for name in (*_FLAGS, *_backend_flags(modules))}
    state |= {name: str(_call(name)) for name in (*_FUNCTIONS, *_getters())}
    state |= {"process": str(process_state()), "torch": [str(torch.__version__), torch.version.git_version]}
    state["autocast"] = list(_autocast())
    state |= {"python": [sys.version, sys.flags.optimize]}
    state["typing"] = _file_digest(str(sys.modules["typing_extensions"].__file__))  # torch needs it, in any version
    names = [
        name for name in os.environ if name.startswith(("PYTORCH", "TORCH")) and not name.startswith(_NOT_FOR_EXPORTS)
    ]
    state["environment"] = {name: os.environ[name] for name in sorted(names)}
    state["numbers"] = list(_arithmetic_settings(walk))
    state["interpreter"] = [sys.getrecursionlimit(), sys.get_int_max_str_digits(), sys.float_info.min / 2.0 == 0.0]
    state["interpreter"] += _rounding(sys.float_info.epsilon / 2.0)
    state["interpreter"] += [str(type(sys.displayhook)), sys.getdefaultencoding(), str(locale.setlocale(locale.LC_ALL))]
    state["copies"] = [_own_entries(copyreg.dispatch_table, walk), _own_entries(copy._deepcopy_dispatch, walk)]  # type: ignore[attr-defined]
    state["warnings"] = _warnings(walk)
    state["cuda"] = bool(torch.version.cuda) and torch.cuda.is_available()
    configurations = sorted(pair for pair in modules if type(pair[1]).__name__ == CONFIGURATION)
    configured = {name: [*_find_overrides(module, walk)] for name, module in configurations}
    state["configuration"] = {name: options for name, options in configured.items() if options}
    hooks = {name: value for name, value in vars(torch.nn.modules.module).items() if name[:8] == "_global_"}
    state["hooks"] = walk.pairs(sorted(pair for pair in hooks.items() if isinstance(pair[1], dict) and pair[1]))
    state["functions"] = {
        name: describe_changes(vars(sys.modules[name]), walk) for name in _SCANNED if name in sys.modules
    }
    state["torch.Tensor"] = walk.value(torch.Tensor)
    state["classes of an export"] = list(_patched_classes(walk))
    state["pytree"] = [[full_name(cls), *map(walk.value, functions)] for cls, functions in registered_nodes()]
    kernels = [name for name in list(torch.library._impls) if not name.endswith("/Meta")]
    kernels = sorted(name for name in kernels if name.startswith("aten/"))
    _refuse_own_kernels(kernels)
    state["kernels"] = hash_bytes("\n".join(kernels).encode()).hex()[:32]
    return state


def _refuse_own_kernels(names: Iterable[str]) -> None:
    """Refuse kernels in Python that other code has registered for torch's operators; torch gives only their places.

    Raises:
        UnstableError: there is one.
    """
    for name in names:
        for path in re.findall(r"registered at (.+):\d+ ::", torch._C._dispatch_dump(f"aten::{name.split('/')[1]}")):
            if path.endswith((".py", ">")) and not file_is_versioned(path):
                raise UnstableError(f"a kernel of one's own ({name})").below("the process")


def _settle_attention_order() -> None:
    """Let torch choose its order of attention kernels for this GPU, as its first call of attention does.

    The first export of a process would change the order otherwise: on Hopper, cuDNN comes before flash attention.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        query = torch.empty(1, 1, 8, 64, device="cuda", dtype=torch.float16)
        torch._fused_sdp_choice(query, query, query)


@functools.lru_cache
def _file_digest(path: str) -> str:
    """Return the digest of a file that this process has loaded; a later change of the file does not change it."""
    return Digest.of_file(path).hex


_HOOKS_OF_WARNINGS = (
    "showwarning",
    "formatwarning",
    "_showwarnmsg",
    "_showwarnmsg_impl",
    "_formatwarnmsg_impl",
    "_formatwarnmsg",
)


def _warnings(walk: Walk) -> list[Json]:
    """Describe what shows warnings; filters count only if a warning can raise an exception or call other code."""
    hooks = [getattr(warnings, name, None) for name in _HOOKS_OF_WARNINGS]
    hooks += [hook for hook in (sys.unraisablehook, *gc.callbacks) if hook is not sys.__unraisablehook__]
    with walk.tolerant():
        written: list[Json] = [walk.value(hook) for hook in hooks]
    is_plain = all(is_versioned_module(getattr(hook, "__module__", None)) for hook in hooks)
    actions = [str(vars(warnings)["defaultaction"]), *(str(one[0]) for one in warnings.filters)]
    if is_plain and "error" not in actions:
        return written
    return [*written, actions[0], *([_filter_part(part) for part in one] for one in warnings.filters)]


def _filter_part(part: Any) -> Json:
    """Describe an item of a filter for warnings: the text of a pattern shows its first 200 letters only."""
    return [part.pattern, part.flags] if type(part) is re.Pattern else str(part)


def describe_output_handlers(names: Iterable[str], walk: Walk) -> list[Json]:  # noqa: C901  # one case for each kind of object
    """Describe the code of installed libraries that handles printed texts, warnings and records of loggers.

    Args:
        names: names of the loggers.
        walk: describes classes and functions.

    Raises:
        UnstableError: code of the user's own files would run.
    """
    pending: list[Any] = [sys.stdout, sys.stderr, logging.lastResort, logging.getLogRecordFactory()]
    pending += vars(logging)["_levelToName"].values()
    pending += [getattr(warnings, name, None) for name in _HOOKS_OF_WARNINGS]
    for name in (*names, "py.warnings"):
        logger: Logger | None = logging.getLogger(name)
        while logger is not None:
            pending += [type(logger), *vars(logger).values(), *logger.filters, *logger.handlers]
            logger = logger.parent if logger.propagate else None
    known: dict[int, Any] = {}
    installed: dict[str, Any] = {}
    while pending:
        value = pending.pop()
        if id(value) in known or type(value) in PLAIN or isinstance(value, (ModuleType, LogRecord, Logger)):
            continue
        known[id(value)] = value
        kind, inside = type(value), []
        if isinstance(value, type):  # its methods can be patched
            kind, inside = value, [one for one in vars(value).values() if type(one) in FUNCTION_TYPES]
            inside += value.__mro__[1:]
        home, is_versioned = str(kind.__module__), is_versioned_module(kind.__module__)
        if isinstance(value, FunctionType):
            home, is_versioned = str(value.__globals__.get("__name__")), file_is_versioned(value.__code__.co_filename)
            inside = list(value.__closure__ or ())
        elif kind is not value:
            inside = gc.get_referents(value)
        if not is_versioned and not is_installed(home):
            what = getattr(value, "__qualname__", kind.__qualname__)
            raise UnstableError(f"{home}.{what}, which handles printed texts, warnings or records of loggers")
        if is_versioned:
            pending += inside
        if isinstance(value, (type, FunctionType)):
            installed |= {} if is_versioned else {f"{home}.{value.__qualname__}": value}
        else:
            pending.append(kind)
    stream = [str(getattr(sys.stdout, name, None)) for name in ("closed", "encoding", "errors")]  # print can raise
    with walk.tolerant():
        return [*stream, *(walk.value(part) for _, part in sorted(installed.items()))]


def _autocast() -> Iterator[Json]:
    for kind in _AUTOCAST:
        try:
            yield [kind, torch.is_autocast_enabled(kind), str(torch.get_autocast_dtype(kind))]
        except RuntimeError:  # torch was built without it
            continue


def _patched_classes(walk: Walk) -> Iterator[Json]:
    """Yield what other code has replaced in torch's classes of tensors, modes and operators, which an export uses."""
    pending: list[type] = [torch.Tensor, TorchDispatchMode, TorchFunctionMode]
    pending += [torch._ops.OperatorBase, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops]
    seen: dict[type, None] = {}
    while pending:
        cls = pending.pop()
        if cls not in seen and is_versioned_module(
            cls.__module__
        ):  # classes of the user's own are not used in an export
            seen[cls] = None
            pending += type.__subclasses__(cls)
    for cls in sorted(seen, key=lambda cls: (cls.__module__, cls.__qualname__)):
        if cls is not torch.Tensor and (patched := list(patched_methods(cls, walk))):
            yield [cls.__module__, cls.__qualname__, patched]


def _refuse_audit_hooks() -> None:
    """Refuse the user's own functions that Python calls at audited events, such as an import.

    Python does not show them. But where there is none, ``sys.audit`` returns before it looks at its arguments.

    Raises:
        UnstableError: there is one, or they cannot be found.
    """
    try:
        sys.audit(None)  # type: ignore[arg-type]
    except TypeError:
        hooks = _find_audit_hooks()
        if hooks is None:
            raise UnstableError("the functions for audited events cannot be found").below("the process") from None
        if own := [one for one in hooks if type(one) is not FunctionType or one.__closure__ or is_user_code(one)]:
            name = getattr(own[0], "__qualname__", type(own[0]).__qualname__)
            why = f"a function of one's own for audited events ({name})"
            raise UnstableError(why).below("the process") from None


@functools.cache
def _find_audit_hooks() -> list[Any] | None:
    """Return the interpreter's list of audit hooks; None if a hook prevents it.

    While a hook runs, the iterator over the list is among the newest objects of the garbage collector. So a hook that
    is added for a moment finds the list, and is removed from it.
    """
    event = "trtcache.audit_hooks"
    found: list[list[Any]] = []

    def find(name: str, _: object) -> None:
        newest = gc.get_objects(generation=0) if name == event else ()
        lists: list[Any] = [one.__reduce__()[1][0] for one in newest if type(one) is type(iter([]))]
        found.extend(one for one in lists if any(hook is find for hook in one))

    try:
        sys.addaudithook(find)
        sys.audit(event)
    except Exception:  # another hook can raise anything
        log.debug("a hook for audited events prevents another", exc_info=True)
    if not found:
        return None
    del found[0][[hook is find for hook in found[0]].index(True)]
    return found[0] if found[0] or sys.version_info >= (3, 14) else None  # a hook in C, if there is no other


def _refuse_modes() -> None:
    for function in (sys.gettrace(), sys.getprofile()):
        if is_user_code(function):
            raise UnstableError("a function of one's own traces or profiles").below("the process")
    active = {
        "a dispatch mode": torch._C._len_torch_dispatch_stack(),
        "a function mode": torch._C._len_torch_function_stack() - (str(torch.get_default_device()) != "cpu"),
        "a transform of functorch": torch._C._functorch.peek_interpreter_stack() is not None,
        "torch.jit.trace": torch._C._get_tracing_state() is not None,
    }
    for what, is_active in active.items():
        if is_active and is_active > 0:
            raise UnstableError(f"{what} is active").below("the process")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise UnstableError("hooks of saved tensors").below("the process")


def is_described_getter(name: str) -> bool:
    """Return whether the result of a function in torch, such as ``_C._get_default_device``, is described."""
    return name in _FUNCTIONS or name in _getters()


_NOT_DESCRIBED = ("thread_name", "device", "autocast", "nvfuser", "tunableop")


@functools.lru_cache
def _getters() -> tuple[str, ...]:
    """Return the names of the functions in ``torch._C`` that return what another one sets.

    Left out are the name of the thread, the current device, autocast, which is described for each device, nvfuser,
    which does nothing but warn, and settings of TunableOp, one of which starts CUDA: that takes 0.2 s, and a child that
    is forked afterwards cannot use CUDA. Code that reads one is refused.
    """
    found: set[str] = set()
    for place in ("_C", "_C._autograd", "_C._functorch"):
        functions = set(dir(_value_at(place)))
        for name in functions:
            before, is_setter, after = name.partition("set_")
            if not is_setter or any(part in name for part in _NOT_DESCRIBED):
                continue
            forms = {f"{start}{verb}{after}" for start in (before, before.lstrip("_")) for verb in ("get_", "is_")}
            forms |= {f"{form}_enabled" for form in (f"{before}{after}", *forms)}
            forms |= {f"{before}{after}"} if after.endswith(("_enabled", "_allowed")) else set()
            found |= {f"{place}.{form}" for form in forms & functions}
    return tuple(sorted(found))


def _backend_flags(modules: Iterable[tuple[str, ModuleType]]) -> Iterator[str]:
    """Yield the names of all flags that torch's backends declare; a build for CUDA has more of them."""
    for name, module in modules:
        for kind in type(module).__mro__[:-1] if name.startswith("torch.backends") else ():
            flags = (flag for flag, value in vars(kind).items() if isinstance(value, torch.backends.ContextProp))
            yield from (f"{name.removeprefix('torch.')}.{flag}" for flag in flags)


def _rounding(half: float) -> list[Json]:
    """Return how the processor rounds, by sums with half of the distance between 1 and the next number."""
    return [str(value) for value in (1.0 + half, -1.0 - half, 1.0 - half / 2.0)]


def _value_at(path: str) -> object:
    value: Any = torch
    try:
        for step in path.split("."):
            value = getattr(value, step, None)
    except RuntimeError:  # torch 2.9 and later, for allow_tf32 after fp32_precision was set
        return "mixed"
    return "ieee" if value == "none" and path.endswith("fp32_precision") else value  # the default


def _call(path: str) -> object:
    if path.startswith("onnx.") and "torch.onnx" not in sys.modules:
        return False  # nothing can have started an ONNX export, and importing it takes 50 ms
    function: Any = _value_at(path)
    try:
        return function() if callable(function) else None
    except RuntimeError:  # as above, for get_float32_matmul_precision
        return "mixed"
    except TypeError:  # it has arguments
        return None


def _arithmetic_settings(walk: Walk) -> Iterator[Json]:
    """Yield the global settings of NumPy and ``decimal`` for arithmetic and formatting."""
    if (numpy := sys.modules.get("numpy")) is not None:
        yield [numpy.__version__, str(numpy.geterr()), str(numpy.get_printoptions()), numpy.getbufsize()]
        yield walk.value(numpy.geterrcall())
        yield list(_names_of_types(numpy, walk))
    known = sys.modules.get("decimal") or __import__("decimal")
    for now in (known.getcontext(), known.DefaultContext, known.BasicContext, known.ExtendedContext):
        traps = sorted(str(one) for one, is_on in now.traps.items() if is_on)
        yield [now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, *traps]


def _names_of_types(numpy: ModuleType, walk: Walk) -> Iterator[Json]:
    """Yield the entries of the table in which NumPy looks up a type, as in ``np.dtype("half")``.

    Names that are not NumPy's do not count for types of installed libraries, such as ml_dtypes: their import adds them.
    """
    for name, kind in numpy.sctypeDict.items():
        label, module = str(getattr(kind, "__name__", "")), getattr(kind, "__module__", None)
        if lookup("numpy", label) is kind:
            yield [str(name), label]
        elif is_versioned_module(module) or not is_installed(module):
            yield [str(name), walk.value(kind)]
        elif name in vars(numpy):
            yield [str(name), f"{module}.{label}"]


def _refuse_other_patterns() -> None:
    """Refuse an entry in the cache of ``re`` that is not the pattern of its key.

    Raises:
        UnstableError: there is one.
    """
    tables = [getattr(re, name, {}) for name in ("_cache", "_cache2")]  # the second is new in Python 3.12
    for (kind, text, flags), pattern in [pair for table in tables for pair in table.copy().items()]:
        is_its_own = type(pattern) is re.Pattern and type(text) is kind and pattern.pattern == text
        if is_its_own and (other := (pattern.flags ^ flags) & ~re.UNICODE):  # flags can stand in the text
            is_its_own = not other & flags and (b"(?" if kind is bytes else "(?") in text
        if not is_its_own:
            raise UnstableError(f"the cache of re has another pattern for {text!r}").below("the process")


def _own_entries(table: Mapping[type, Any], walk: Walk) -> Json:
    """Describe the entries that the user's files have added to a table of Python's library by class."""
    own = [(kind, function) for kind, function in table.items() if is_user_module(function.__module__)]
    return walk.pairs(own)


def _find_overrides(module: Any, walk: Walk) -> Iterator[Json]:
    """Yield the options of a torch configuration module that this process has set."""
    from trtcache.keys.torch_config import overrides, passes

    for option, value in sorted(overrides(module)):
        yield [option, walk.value(value)]
    yield from map(list, sorted(passes(module)))

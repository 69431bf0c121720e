"""What the process says to torch that an export reads, and what somebody has changed of torch itself."""

from __future__ import annotations

import functools
import marshal
import os
import sys
import warnings
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.digests import hash_bytes
from trtcache.direct.attributes import Describer, UnstableError
from trtcache.direct.classes import IN_C, SIMPLE
from trtcache.direct.origin import is_trusted, is_trusted_module
from trtcache.keys.alias import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.digests import Json

_FLAGS = (
    *("backends.cudnn.enabled", "backends.cudnn.benchmark", "backends.cudnn.deterministic"),
    *("backends.cudnn.allow_tf32", "backends.cuda.matmul.allow_tf32", "backends.mkldnn.enabled"),
    *("backends.mkldnn.deterministic", "backends.opt_einsum.enabled", "backends.opt_einsum.strategy"),
    *("backends.quantized.engine", "utils.deterministic.fill_uninitialized_memory"),
    *(f"backends.cuda.matmul.allow_{one}_reduced_precision_reduction" for one in ("fp16", "bf16")),
    *("backends.cuda.matmul.allow_fp16_accumulation", "backends.fp32_precision"),
    *(f"backends.{one}.fp32_precision" for one in ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn")),
    *(f"backends.mkldnn.{one}fp32_precision" for one in ("", "matmul.", "conv.", "rnn.")),
)
_ASKED = (
    *("is_grad_enabled", "is_inference_mode_enabled", "is_deterministic_algorithms_warn_only_enabled"),
    *("get_float32_matmul_precision", "is_autocast_cache_enabled", "get_num_threads", "is_anomaly_enabled"),
    *("backends.mha.get_fastpath_enabled", "get_num_interop_threads", "is_warn_always_enabled"),
    *("_C._get_sdp_priority_order", "_C._is_multithreading_enabled", "_C._is_fwd_grad_enabled"),
    *("_C._is_view_replay_enabled", "distributed.is_available", "distributed.is_initialized"),
)
_CONFIGURATIONS = ("torch._dynamo.config", "torch.fx.experimental._config", "torch._functorch.config")
_PREFIXES = ("PYTORCH", "TORCH")
_OF_BUILDS = ("TORCHINDUCTOR_", "TORCH_HOME", "TORCH_LOGS", "TORCH_TRACE", "TORCH_SHOW", "TORCH_EXTENSIONS")
_VALUES = frozenset({bool, int, float, str})
_WRITTEN_AT = attrgetter("__code__.co_qualname", "__code__.co_firstlineno")
_DECIMAL = [28, "ROUND_HALF_EVEN", -999999, 999999, 1, 0]
_DECIMAL += [f"<class 'decimal.{one}'>" for one in ("DivisionByZero", "InvalidOperation", "Overflow")]
_WRAPPER = "_disable_dynamo.<locals>.inner"
_PATCHED = ("torch", "torch.nn.functional", "torch.functional", "torch.nn.init", "torch.ops", "torch._C._nn")


def surroundings(describer: Describer) -> dict[str, Json]:
    """Return what the process says to torch.

    Raises:
        UnstableError: a mode or a transform is active, whose effect is not known.
    """
    _refuse_modes()
    said: dict[str, Any] = {name: str(_at(name)) for name in _FLAGS}
    said |= {name: str(_called(name)) for name in _ASKED}
    said |= {"process": str(process()), "torch": [torch.__version__, torch.version.git_version]}
    said |= {"python": [sys.version, sys.flags.optimize], "environment": _environment(os.environ)}
    said["numbers"] = list(_numbers())
    said["warnings"] = [str(one) for one in warnings.filters if one[0] == "error"]
    said["cuda"] = bool(torch.version.cuda) and torch.cuda.is_available()
    said["configuration"] = {name: list(_changed(name, describer)) for name in _CONFIGURATIONS}
    said["hooks"] = describer.of([value for _, value in sorted(_hooks())])
    said["replaced"] = dict(_replaced(describer))
    said["functions"] = _functions()
    kernels = sorted(name for name in list(torch.library._impls) if name[:5] == "aten/" and name[-5:] != "/Meta")
    said["kernels"] = hash_bytes("\n".join(kernels).encode()).hex()[:32]
    return said


def _refuse_modes() -> None:
    active = {
        "a dispatch mode": torch._C._len_torch_dispatch_stack(),
        "a function mode": torch._C._len_torch_function_stack() - (str(torch.get_default_device()) != "cpu"),
        "a transform of functorch": torch._C._functorch.peek_interpreter_stack() is not None,
        "torch.jit.trace": torch._C._get_tracing_state() is not None,
    }
    for what, is_active in active.items():
        if is_active and is_active > 0:
            raise UnstableError(f"{what} is active").below("the process")


def _at(path: str) -> object:
    value: Any = torch
    try:
        for step in path.split("."):
            value = getattr(value, step, None)
    except RuntimeError:  # torch 2.9 and later, of allow_tf32 where fp32_precision was set
        return "mixed"
    return "ieee" if value == "none" and path.endswith("fp32_precision") else value  # nobody has set it


def _called(path: str) -> object:
    function: Any = _at(path)
    try:
        return function() if callable(function) else None
    except RuntimeError:  # as above, of get_float32_matmul_precision
        return "mixed"


def _environment(environ: Mapping[str, str]) -> dict[str, Json]:
    names = [name for name in environ if name.startswith(_PREFIXES) and not name.startswith(_OF_BUILDS)]
    return {name: environ[name] for name in sorted(names)}


def _numbers() -> Iterator[Json]:
    """Yield how NumPy calculates and writes numbers, and ``decimal`` if that is not as at first: no call says it."""
    numpy, known = sys.modules.get("numpy"), sys.modules.get("decimal")
    if numpy is not None:
        yield [numpy.__version__, str(numpy.geterr()), str(numpy.get_printoptions())]
    if known is not None:
        now = known.getcontext()
        traps = [one for one, is_on in now.traps.items() if is_on]
        said = [now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, *sorted(map(str, traps))]
        if said != _DECIMAL:
            yield said


def _changed(name: str, describer: Describer) -> Iterator[Json]:
    """Yield the options of a configuration that this process has set; of one not imported nobody has."""
    entries: Mapping[str, Any] = getattr(sys.modules.get(name), "_config", {})
    if not entries:
        return
    from trtcache.backends.aot_inductor.ambient import overrides

    for option, value in sorted(overrides(sys.modules.get(name))):
        yield [option, describer.of(value)]


def _hooks() -> Iterator[tuple[str, object]]:
    """Yield the hooks of all modules at once."""
    for name, value in vars(torch.nn.modules.module).items():
        if name.startswith("_global_") and isinstance(value, dict) and value:
            yield name, value


def _inner(function: FunctionType) -> FunctionType:
    """Return what torch._dynamo has wrapped when it was imported, as ``torch.manual_seed``: the function itself."""
    inner = getattr(function, "__wrapped__", function) if is_trusted(function.__code__.co_filename) else function
    return inner if type(inner) is FunctionType else function


def _functions() -> Json:
    """Return a digest of which function of torch is at which of its places: they can be exchanged, too."""
    found: list[object] = []
    for owner in (torch, torch.nn.functional, torch.functional, torch.Tensor, torch._C._nn):
        for name, value in list(vars(owner).items()):  # another thread may import more of torch meanwhile
            kind = type(value)
            if kind in IN_C:
                found.append((name, value.__qualname__))
            elif kind is FunctionType:
                written = _WRITTEN_AT(value)
                found.append((name, *(written if written[0] != _WRAPPER else _WRITTEN_AT(_inner(value)))))
            elif kind in _VALUES:
                found.append((name, value))
            elif kind is functools.partial or not is_trusted_module(kind.__module__):
                found.append((name, kind.__qualname__))
    return hash_bytes(marshal.dumps(found, 2)).hex()[:32]


def _replaced(describer: Describer) -> Iterator[tuple[str, Json]]:
    """Yield functions of torch in whose places somebody else's are, and what somebody has put on its tensors."""
    spaces = [(name, vars(module)) for name in _PATCHED if (module := sys.modules.get(name)) is not None]
    for owner, space in (*spaces, ("torch.Tensor", vars(torch.Tensor))):
        for name, value in list(space.items()):
            if type(value) is FunctionType and not is_trusted(value.__code__.co_filename):
                yield f"{owner}.{name}", describer.of(value)
    for name, value in list(vars(torch.Tensor).items()):
        if type(value) in SIMPLE and name[:2] != "__":
            yield f"torch.Tensor.{name}", describer.of(value)

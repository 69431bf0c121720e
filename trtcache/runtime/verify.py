"""Comparison of an engine with eager torch, on the caller's inputs.

No inputs are made up: an integer may be an index, and an invalid index crashes the process.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RunError, SettingsError, VerifyError
from trtcache.lowering.arguments import Input

Modes: TypeAlias = frozenset[str]
"""The names of the submodules in train mode; the others are in eval mode."""

_Values: TypeAlias = "list[tuple[tuple[Any, ...], Any]]"

KEPT_BYTES = 16 << 20
"""Examples up to this size are kept as long as the compiled module."""

_TOLERANCES = {torch.float64: 1e-6, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_OTHERS_TOLERANCE = 1e-3  # float32: sums in another order
_FP8_TOLERANCE = 0.3
_TF32_TOLERANCE = 1e-2  # on a GPU, where 12 convolutions were off by 1.3e-3


@frozen_dataclass
class AutocastState:
    """A thread's state of ``torch.autocast``, in which a model was compiled.

    Calls of the model, and further compiles, take place in it: an engine has the casts of that time, whatever the
    caller has switched on.

    Attributes:
        dtypes: the device types for which it is on, with their dtypes.
        cached: whether it caches casts.
    """

    dtypes: tuple[tuple[str, torch.dtype], ...]
    cached: bool

    @classmethod
    def here(cls) -> AutocastState:
        """Return this thread's state."""
        device_types = torch._C._autocast_supported_devices() if torch._C._is_any_autocast_enabled() else []
        dtypes = [(one, torch.get_autocast_dtype(one)) for one in device_types if torch.is_autocast_enabled(one)]
        return cls(tuple(dtypes), torch.is_autocast_cache_enabled())

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Set this state for the block."""
        if not self.dtypes and not torch._C._is_any_autocast_enabled():
            yield
            return
        with torch._C._DisableAutocast(), ExitStack() as stack:
            for device_type, dtype in self.dtypes:
                stack.enter_context(torch.autocast(device_type, dtype=dtype, cache_enabled=self.cached))
            yield


def tolerance_of(verify: object) -> float | None:
    """Return the allowed relative error; None for ``True`` (the default of each dtype) and for ``False``.

    Raises:
        SettingsError: it is neither a flag nor a number from 0 to less than 1, which would allow every output to be 0.
    """
    if isinstance(verify, bool):
        return None
    if isinstance(verify, (int, float)) and 0 <= verify < 1:
        return float(verify)
    expected = "expected True, False or how much an output may be off by, relative to its largest value"
    raise SettingsError("verify", f"{expected} (such as 1e-3; less than 1), got {verify!r}")


@frozen_dataclass
class Examples:
    """The arguments of ``compile``, if they were kept.

    Attributes:
        args, kwargs: example inputs, the caller's own tensors; ``args`` is None if they are too large, or only shapes.
        model: a weak reference to the model.
        modes: the modes of its submodules when it was compiled; None if there is none.
        autocast: the autocast of that time; None if it is not known.
    """

    args: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] | None = None
    model: weakref.ref[torch.nn.Module] | None = None
    modes: Modes | None = None
    autocast: AutocastState | None = None

    @property
    def module(self) -> torch.nn.Module | None:
        """The compiled model, if it still exists."""
        return self.model() if self.model is not None else None

    @classmethod
    def of(
        cls,
        model: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        modes: Modes | None,
        autocast: AutocastState,
    ) -> Examples:
        """Keep the inputs if they are small. An exported program's own example inputs are kept in their place."""
        if isinstance(model, torch.export.ExportedProgram) and model.example_inputs is not None:
            args, kwargs = model.example_inputs
        leaves = pytree.tree_leaves((args, kwargs))
        size_bytes = sum(one.nbytes for one in leaves if isinstance(one, torch.Tensor))
        kept = size_bytes <= KEPT_BYTES and not any(isinstance(one, Input) for one in leaves)
        reference = weakref.ref(model) if isinstance(model, torch.nn.Module) else None
        kept_args, kept_kwargs = (args, kwargs) if kept else (None, None)
        return cls(kept_args, kept_kwargs, reference, modes, autocast)


def modes_of(model: object) -> Modes | None:
    """Return the names of the submodules in train mode; None unless ``model`` is an ``nn.Module``."""
    if not isinstance(model, torch.nn.Module):
        return None
    return frozenset(name for name, part in model.named_modules() if getattr(part, "training", False))


def eager(
    module: torch.nn.Module | None,
    weights: Mapping[str, torch.Tensor],
    modes: Modes | None = None,
    autocast: AutocastState | None = None,
) -> Callable[..., Any]:
    """Return a function that calls a module with other weights; module and weights are not changed.

    Args:
        module: the module.
        weights: values in place of its weights, and of buffers that calls change.
        modes: the modes of the submodules to run in; by default the current ones.
        autocast: the autocast to run in; by default that of the call.

    Raises:
        VerifyError: there is no module, or it is in other modes and cannot be copied.
    """
    if module is None:
        why = "weights alone cannot run in eager torch, and the compiled model no longer exists"
        raise VerifyError(why=f"{why}; give the module")
    from trtcache.runtime.on_guard import in_modes, with_state  # rarely needed

    if isinstance(module, torch.jit.ScriptModule):
        from trtcache.frontends.torchscript import Script, Scripted  # few models are TorchScript

        module = Scripted(Script(module))
    if modes is not None:
        try:
            module = in_modes(module, modes)
        except RunError as error:
            raise VerifyError(why=error.why) from error
    buffers = dict(module.named_buffers(remove_duplicate=False))
    names = {*dict(module.named_parameters(remove_duplicate=False)), *buffers}
    used = {name: one.detach() for name, one in weights.items() if name in names}
    clones: dict[int, torch.Tensor] = {}  # BatchNorm in train mode writes to its buffers
    for name, buffer in buffers.items():
        if name not in used:
            used[name] = clones.setdefault(id(buffer), buffer.detach().clone())

    copied = None  # a model that cannot be copied, such as TorchScript, is called with ``functional_call``
    with suppress(RuntimeError, TypeError, ValueError, NotImplementedError):
        copied = with_state(module, used)  # calls of other threads use the module itself meanwhile

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), nullcontext() if autocast is None else autocast.apply():
            if copied is None:
                return torch.func.functional_call(module, used, args, kwargs, tie_weights=False)
            return copied(*args, **kwargs)

    return call


def compare(
    reference: Callable[..., Any],
    engine: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    tolerance: float | None,
    dtypes: Iterable[torch.dtype],
    device: torch.device,
) -> float:
    """Return the largest relative error of all outputs: an output's largest error divided by its largest value.

    What a call writes into its inputs is compared as well.

    Args:
        reference: computes the expected outputs.
        engine: computes the outputs to check; each gets its own copy of the inputs.
        args: positional inputs.
        kwargs: keyword inputs.
        tolerance: the allowed relative error; None for the largest default of the output's and the weights' dtypes.
        dtypes: the weights' dtypes.
        device: where the engine runs.

    Raises:
        VerifyError: they differ by more, or have different structures.
        InputError: the engine was compiled for other inputs.
    """
    (found, written), (wanted, expected_written) = (_call(one, args, kwargs) for one in (engine, reference))
    if [path for path, _ in found] != [path for path, _ in wanted]:
        raise VerifyError(why="the outputs have another structure than those of eager torch")
    outputs = len(found)
    found, wanted = [*found, *written], [*wanted, *expected_written]
    of_weights = max((_tolerance(one, device) for one in dtypes), default=0.0)
    worst = 0.0
    for place, ((path, expected), (_, actual)) in enumerate(zip(wanted, found, strict=True)):
        own = _tolerance(expected.dtype, device) if isinstance(expected, torch.Tensor) else 0.0
        allowed = max(of_weights, own) if tolerance is None else tolerance
        off_by = _off_by(expected, actual)
        if not off_by <= allowed:
            where = f"output{pytree.keystr(path)}" if place < outputs else f"input{pytree.keystr(path)} after the call"
            raise VerifyError(where=where, why=f"off by {off_by:.1e} of its largest value; {allowed:.1e} is allowed")
        worst = max(worst, off_by)
    return worst


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Values, _Values]:
    """Return the outputs of a call on copies of the inputs, and the copies of tensors after it, each with its path."""
    args, kwargs = _copies(args), _copies(dict(kwargs))
    inputs = pytree.tree_flatten_with_path((*args, *kwargs.values()))[0]  # before a call that changes lists
    outputs = pytree.tree_flatten_with_path(function(*args, **kwargs))[0]
    return outputs, [pair for pair in inputs if isinstance(pair[1], torch.Tensor)]


def _copies(inputs: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda one: one.detach().clone(), inputs)


def _tolerance(dtype: torch.dtype, device: torch.device) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    if dtype.itemsize == 1:
        return _FP8_TOLERANCE
    return _TOLERANCES.get(dtype, _OTHERS_TOLERANCE if device.type == "cpu" else _TF32_TOLERANCE)


def _off_by(wanted: Any, found: Any) -> float:
    """Return the largest error relative to the largest value; infinite if it cannot be a rounding error."""
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return 0.0 if type(wanted) is type(found) and wanted == found else float("inf")
    if wanted.dtype != found.dtype or wanted.shape != found.shape:
        return float("inf")
    same = (wanted == found) | (wanted.isnan() & found.isnan())
    if bool(same.all()):
        return 0.0
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return float("inf")
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    wanted, found = wanted.to(wide), found.to(wide)
    apart = (wanted - found).abs().masked_fill(same, 0.0).max()
    largest = wanted.abs().nan_to_num(0.0, 0.0, 0.0).max()
    off_by = float(apart / largest) if float(largest) else float(apart)
    return float("inf") if math.isnan(off_by) else off_by  # NaN: only one of them has it

"""Puts weights into a plan that was loaded and has not run yet. Experimental: not yet run on a GPU.

A refit is a new engine (``docs/adr/0005``), so one that fails spoils nothing: the engine is thrown away, and the one of
before answers. What is asked of TensorRT is proven first: the weights that it would take are those that were proven
when the plan was built, each is given once, and with the dtype and number of elements that it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.tensorrt.log import logger_of
from trtcache.errors import IncompatibleEngineError, RefitError
from trtcache.weights.fingerprints import fingerprints

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.log import Errors


@dataclass(frozen=True, slots=True)
class Refitted:
    """What a refit did.

    Attributes:
        set: names of the weights that were set.
        fingerprints: of all weights that the engine has now.
    """

    set: tuple[str, ...]
    fingerprints: Mapping[str, str] = field(default_factory=dict)


def refit_engine(
    trt: Any,
    logger: Any,
    engine: Any,
    weights: Mapping[str, torch.Tensor],
    names: Collection[str],
    *,
    errors: Errors,
    has: Mapping[str, str] | None = None,
) -> Refitted:
    """Set the weights of an engine, all of them or, where it is known what it has, those that are others.

    TensorRT reads a weight when the engine is refitted with it, which is done as soon as it lacks no other one: so a
    mapping that makes weights when they are asked for has one at a time, or those that TensorRT combines.

    Args:
        trt: the module of the TensorRT that loaded the engine.
        logger: its logger.
        engine: an engine that nobody runs; it is spoiled where this raises.
        weights: the engine's weights by name, of the dtype and shape that the program says; asked for one by one.
        names: those that the plan takes, as they were proven when it was built.
        errors: what TensorRT complains of meanwhile.
        has: fingerprints of what the engine has, by name; None if nobody knows, and then all are set.

    Raises:
        IncompatibleEngineError: the engine takes other weights than were proven.
        RefitError: a weight is missing, or TensorRT refuses one.
    """
    refitter = trt.Refitter(engine, logger)
    _check_names(set(refitter.get_all_weights()), set(names))
    if missing := sorted(set(names) - set(weights)):
        raise RefitError(missing=tuple(missing))
    found = dict(has or {})
    given: dict[str, torch.Tensor] = {}  # TensorRT reads their memory until the engine is refitted
    done: list[str] = []
    kept: set[str] = set()
    for name in sorted(names):
        tensor = weights[name].detach().contiguous()
        if has is not None:
            digest = str(fingerprints([tensor])[0])
            if has.get(name) == digest:
                kept.add(name)
                continue
            found[name] = digest
        _set(trt, refitter, name, tensor, errors)
        given[name] = tensor
        done.append(name)
        if not refitter.get_missing_weights():
            _flush(refitter, given, errors)
    _finish(trt, refitter, weights, kept, given, errors)
    return Refitted(tuple(done), found)


def _finish(
    trt: Any,
    refitter: Any,
    weights: Mapping[str, torch.Tensor],
    kept: Collection[str],
    given: dict[str, torch.Tensor],
    errors: Errors,
) -> None:
    """Set what was left as it is and is wanted all the same, and see that nothing is lacking."""
    for name in sorted(set(kept).intersection(refitter.get_missing_weights())):
        given[name] = weights[name].detach().contiguous()
        _set(trt, refitter, name, given[name], errors)
    if lacking := sorted(name or "a weight without a name" for name in refitter.get_missing_weights()):
        raise RefitError(missing=tuple(f"{one} (TensorRT wants it with {', '.join(given)})" for one in lacking))
    if given:
        _flush(refitter, given, errors)


def _check_names(takes: set[str], proven: set[str]) -> None:
    if takes == proven:
        return
    more, fewer = sorted(takes - proven), sorted(proven - takes)
    what = "; ".join(
        f"it {verb} {', '.join(names[:6])}" for verb, names in (("also takes", more), ("lacks", fewer)) if names
    )
    raise IncompatibleEngineError("plan", f"it takes other weights than were proven when it was built: {what}")


def _set(trt: Any, refitter: Any, name: str, tensor: torch.Tensor, errors: Errors) -> None:
    prototype = refitter.get_weights_prototype(name)
    kind = dtypes_of(trt).get(tensor.dtype)
    if (prototype.dtype, prototype.size) != (kind, tensor.numel()):
        has = f"{prototype.size} elements of {prototype.dtype}"
        raise RefitError(mismatched=(f"{name} ({tensor.numel()} elements of {tensor.dtype}, the plan has {has})",))
    locations = trt.TensorLocation
    where = locations.DEVICE if tensor.is_cuda else locations.HOST
    if tensor.is_cuda:  # TensorRT reads it on a stream of its own
        torch.cuda.current_stream(tensor.device).synchronize()
    if not refitter.set_named_weights(name, trt.Weights(kind, tensor.data_ptr(), tensor.numel()), where):
        raise RefitError(mismatched=(f"{name} ({errors.text})",))


def _flush(refitter: Any, given: dict[str, torch.Tensor], errors: Errors) -> None:
    """Refit the engine with what was set, and let go of it."""
    if not refitter.refit_cuda_engine():
        raise RefitError(mismatched=(f"{', '.join(given)} ({errors.text})",))
    for name in given:
        refitter.unset_named_weights(name)
    given.clear()


def plan_with(
    flavour: Flavour, plan: bytes | memoryview, stored: bytes | memoryview, weights: Mapping[str, torch.Tensor]
) -> memoryview:
    """Return a plan with other weights in it.

    Args:
        flavour: which TensorRT built it.
        plan: its bytes, verified.
        stored: what is stored beside it.
        weights: the engine's weights by name.

    Raises:
        IncompatibleEngineError: TensorRT cannot load it, or it is not what is stored beside it.
        NoDeviceError: TensorRT-RTX says that this machine cannot run it.
        RefitError: TensorRT refuses a weight.
    """
    from trtcache.backends.tensorrt.preflight import Facts, Machine, require_fit
    from trtcache.backends.tensorrt.runner import deserialized

    facts = Facts.read(bytes(stored))
    require_fit(facts, Machine.here(flavour))
    trt = flavour.load()
    logger, ears = logger_of(trt)
    runtime, engine = deserialized(trt, flavour, plan)
    with ears.listening() as errors:
        refit_engine(trt, logger, engine, weights, facts.refittable, errors=errors)
        written = engine.serialize()
        if written is None:
            raise IncompatibleEngineError("plan", f"{flavour.title} cannot write it: {errors.text}")
    del engine, runtime
    return memoryview(written)


def dtypes_of(trt: Any) -> dict[torch.dtype, Any]:
    """Return TensorRT's dtype for each of torch's that a weight which is refitted can have."""
    kinds = trt.DataType
    return {torch.float32: kinds.FLOAT, torch.float16: kinds.HALF, torch.bfloat16: kinds.BF16}

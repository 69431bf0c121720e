"""Refit of a deserialized plan that has not run yet. Experimental: not yet run on a GPU.

A refit creates a new engine (``docs/adr/0005``), so a failed one does no harm: the new engine is dropped and the old
one stays in use. The request is validated first: the weights that TensorRT expects must be those proven when the plan
was built, and each is set once, with matching dtype and number of elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from trtcache.backends.tensorrt.log import get_logger
from trtcache.errors import IncompatibleEngineError, RefitError
from trtcache.weights.fingerprints import fingerprints

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.log import ErrorCollector


@dataclass(frozen=True, slots=True)
class PlanRefitResult:
    """The result of a plan's refit.

    Attributes:
        set: names of the weights that were set.
        fingerprints: fingerprints of all weights that the engine has now.
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
    errors: ErrorCollector,
    has: Mapping[str, str] | None = None,
) -> PlanRefitResult:
    """Set the weights of an engine: all of them, or only those that differ if its weights are known.

    TensorRT reads the weights when the engine is refitted, which happens as soon as none is missing: so a mapping that
    computes weights lazily holds one at a time, or those that TensorRT combines.

    Args:
        trt: the module of the TensorRT that loaded the engine.
        logger: its logger.
        engine: an engine that does not run; it is unusable if this raises.
        weights: the engine's weights by name, with the program's dtype and shape; read one by one.
        names: the refittable weights, as proven when the plan was built.
        errors: collects TensorRT's errors.
        has: fingerprints of the engine's current weights by name; None if unknown, then all are set.

    Raises:
        IncompatibleEngineError: the engine expects other weights than were proven.
        RefitError: a weight is missing, or TensorRT rejects one.
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
    return PlanRefitResult(tuple(done), found)


def _finish(
    trt: Any,
    refitter: Any,
    weights: Mapping[str, torch.Tensor],
    kept: Collection[str],
    given: dict[str, torch.Tensor],
    errors: ErrorCollector,
) -> None:
    """Set unchanged weights that TensorRT requires after all, and check that none is missing."""
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


def _set(trt: Any, refitter: Any, name: str, tensor: torch.Tensor, errors: ErrorCollector) -> None:
    prototype = refitter.get_weights_prototype(name)
    kind = refit_dtypes(trt).get(tensor.dtype)
    if (prototype.dtype, prototype.size) != (kind, tensor.numel()):
        has = f"{prototype.size} elements of {prototype.dtype}"
        raise RefitError(mismatched=(f"{name} ({tensor.numel()} elements of {tensor.dtype}, the plan has {has})",))
    locations = trt.TensorLocation
    where = locations.DEVICE if tensor.is_cuda else locations.HOST
    if tensor.is_cuda:  # TensorRT reads it on its own stream
        torch.cuda.current_stream(tensor.device).synchronize()
    if not refitter.set_named_weights(name, trt.Weights(kind, tensor.data_ptr(), tensor.numel()), where):
        raise RefitError(mismatched=(f"{name} ({errors.text})",))


def _flush(refitter: Any, given: dict[str, torch.Tensor], errors: ErrorCollector) -> None:
    """Refit the engine with the weights set, and release them."""
    if not refitter.refit_cuda_engine():
        raise RefitError(mismatched=(f"{', '.join(given)} ({errors.text})",))
    for name in given:
        refitter.unset_named_weights(name)
    given.clear()


def plan_with(
    flavour: Flavour, plan: bytes | memoryview, stored: bytes | memoryview, weights: Mapping[str, torch.Tensor]
) -> memoryview:
    """Return a plan with other weights.

    Args:
        flavour: the TensorRT that built it.
        plan: its verified bytes.
        stored: the content of its facts member.
        weights: the engine's weights by name.

    Raises:
        IncompatibleEngineError: TensorRT cannot load it, or it does not match its facts.
        NoDeviceError: TensorRT-RTX reports that this machine cannot run it.
        RefitError: TensorRT rejects a weight.
    """
    from trtcache.backends.tensorrt.preflight import Machine, PlanFacts, require_fit
    from trtcache.backends.tensorrt.runner import deserialize

    facts = PlanFacts.read(bytes(stored))
    require_fit(facts, Machine.here(flavour))
    trt = flavour.load()
    logger, router = get_logger(trt)
    runtime, engine = deserialize(trt, flavour, plan)
    with router.collect_errors() as errors:
        refit_engine(trt, logger, engine, weights, facts.refittable, errors=errors)
        written = engine.serialize()
        if written is None:
            raise IncompatibleEngineError("plan", f"{flavour.title} cannot write it: {errors.text}")
    del engine, runtime
    return memoryview(written)


def refit_dtypes(trt: Any) -> dict[torch.dtype, Any]:
    """Return TensorRT's dtype for each of torch's that a refittable weight can have."""
    kinds = trt.DataType
    return {torch.float32: kinds.FLOAT, torch.float16: kinds.HALF, torch.bfloat16: kinds.BF16}

"""Engines from plans: callable on a GPU, or kept only to be stored where the plan cannot run. Not yet run on a GPU.

A refit creates a new engine (``docs/adr/0005``), so a failed one does no harm: the new engine is dropped and the old
one stays in use. The request is validated first: the weights that TensorRT expects must be those recorded when the plan
was built, and each is set once, with matching dtype and number of elements.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.fitness import gpu_here
from trtcache.backends.protocol import TuningStore, current_tuning_store
from trtcache.backends.tensorrt.callbacks import ErrorCollector, get_logger
from trtcache.backends.tensorrt.preflight import (
    Machine,
    PlanFacts,
    find_obstacle,
    other_gpu_product,
    require_loadable_version,
)
from trtcache.backends.tensorrt.tuning import RuntimeCache
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RefitError

if TYPE_CHECKING:
    from trtcache.backends.tensorrt.flavour import Flavour

log = logging.getLogger(__name__)

REFITTABLE = frozenset({"float16", "bfloat16", "float32"})
"""The dtypes of the weights that TensorRT refits. A plan contains the values of all others, so its key has them."""

_NOT_REFITTABLE = (
    "all: the plan is not refittable (compile the model with the new weights, which has a plan of its own)"
)


def load_plan(
    flavour: Flavour,
    plan: bytes | memoryview,
    facts: PlanFacts,
    *,
    device: torch.device,
    weights: Mapping[str, torch.Tensor],
    machine: Machine | None = None,
) -> LoadedPlan | UnloadedPlan:
    """Return a callable plan, or one for another machine that can only be stored.

    Args:
        flavour: TensorRT or TensorRT-RTX.
        plan: the serialized engine.
        facts: what was stored beside the plan.
        device: the device to run on.
        weights: set in the engine if the plan is refittable.
        machine: the machine to compare the facts with; by default this one.
    """
    machine = machine or Machine.here(flavour)
    require_loadable_version(facts, machine)
    obstacle = find_obstacle(facts, machine)
    if obstacle is None:
        if product := other_gpu_product(facts, machine):
            log.warning("a plan of %s was built for %s: it may be slower here, or not load", flavour.title, product)
        try:
            return LoadedPlan(flavour, plan, facts, device, weights, current_tuning_store())
        except NoDeviceError as error:
            why = error.why
    else:
        why = obstacle.why
    log.info("a plan of %s is not loaded: %s", flavour.title, why)
    return UnloadedPlan(flavour, plan, weights, why, is_refittable=facts.refit)


class LoadedPlan:
    """A plan on its GPU. Experimental: see ``runner.py``."""

    shares_weights: ClassVar[bool] = False  # a plan has its own

    def __init__(
        self,
        flavour: Flavour,
        plan: bytes | memoryview,
        facts: PlanFacts,
        device: torch.device,
        weights: Mapping[str, torch.Tensor],
        store: TuningStore | None = None,
    ) -> None:
        """Load a plan, and set weights if it is refittable; kernels compiled at its first call go to ``store``."""
        # These import TensorRT, which a plan that is only stored does not need.
        from trtcache.backends.tensorrt.runner import CudaDevice, Runner, deserialize

        self._flavour, self.plan, self._facts, self._device = flavour, plan, facts, device
        self.weights, self._store = weights, store
        trt, place = flavour.load(), CudaDevice(device)
        with place.activate():
            self._runtime, engine = deserialize(trt, flavour, plan, facts)
            if facts.refit:  # the weights in it are unknown
                logger, router = get_logger(trt)
                with router.collect_errors() as errors:
                    refit_engine(trt, logger, engine, weights, facts.refittable, errors=errors)
            self._compiled = RuntimeCache(engine, flavour, gpu_here(), store if flavour.compiles_at_run else None)
            context = self._compiled.context
            self._runner = Runner(trt, flavour.name, engine, facts, home=device, place=place, context=context)
        weakref.finalize(self, self._compiled.keep)  # kernels of later calls are stored, at exit too

    def refit(self, weights: Mapping[str, torch.Tensor]) -> LoadedPlan:
        """Load the plan again with other weights; running calls on this engine are unaffected.

        Raises:
            RefitError: the plan is not refittable, or TensorRT rejects a weight.
        """
        if not self._facts.refit:
            raise RefitError(mismatched=(_NOT_REFITTABLE,))
        return LoadedPlan(self._flavour, self.plan, self._facts, self._device, weights, self._store)

    def parallel(self, calls: int) -> LoadedPlan:  # noqa: ARG002  # each thread has its own context
        """Return this engine: each thread that calls it has its own context."""
        return self

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the plan on the caller's stream."""
        outputs = self._runner.run(inputs)
        self._compiled.has_run()
        return outputs


class UnloadedPlan:
    """A verified plan with its weights, on a machine that cannot run it.

    Plans are built and stored on such machines, so loading one is not an error; calling it is.
    """

    shares_weights: ClassVar[bool] = False  # a plan has its own

    def __init__(
        self,
        flavour: Flavour,
        plan: bytes | memoryview,
        weights: Mapping[str, torch.Tensor],
        why: str,
        *,
        is_refittable: bool = True,
    ) -> None:
        """Keep a plan; ``why`` is what this machine lacks."""
        self._flavour = flavour
        self.plan = plan
        self.weights = weights
        self.why = why
        self._is_refittable = is_refittable

    def refit(self, weights: Mapping[str, torch.Tensor]) -> UnloadedPlan:  # noqa: ARG002  # nothing is refitted
        """Raise: a refit needs the GPU of the plan.

        Raises:
            RefitError: the plan is not refittable.
            NoDeviceError: a refit needs a GPU.
        """
        if not self._is_refittable:
            raise RefitError(mismatched=(_NOT_REFITTABLE,))
        raise NoDeviceError(self._flavour.name, "", f"it is refitted on its GPU: {self.why}")

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing runs
        """Raise.

        Raises:
            NoDeviceError: there is no GPU to run it on.
        """
        raise NoDeviceError(self._flavour.name, "", f"it runs on its GPU: {self.why}")


def refit_engine(
    trt: Any,
    logger: Any,
    engine: Any,
    weights: Mapping[str, torch.Tensor],
    names: Collection[str],
    *,
    errors: ErrorCollector,
) -> None:
    """Set all weights of an engine.

    TensorRT reads the weights when the engine is refitted, which happens whenever none of those is missing that belong
    to the ones set already. So one weight is in memory at a time, or one group that TensorRT has fused, also if
    ``weights`` computes them lazily.

    ``engine`` must not be running, and is unusable if this raises. ``names`` are the refittable weights, as recorded
    when the plan was built; ``weights`` have the program's dtype and shape and are read one by one.

    Raises:
        IncompatibleEngineError: the engine expects other weights than were recorded.
        RefitError: a weight is missing, or TensorRT rejects one.
    """
    refitter = trt.Refitter(engine, logger)
    takes, recorded = set(refitter.get_all_weights()), set(names)
    if takes != recorded:
        verbs = (("also takes", sorted(takes - recorded)), ("lacks", sorted(recorded - takes)))
        what = "; ".join(f"it {verb} {', '.join(some[:6])}" for verb, some in verbs if some)
        raise IncompatibleEngineError("plan", f"it takes other weights than were recorded when it was built: {what}")
    if missing := sorted(set(names) - set(weights)):
        raise RefitError(missing=tuple(missing))
    pending: dict[str, torch.Tensor] = {}  # TensorRT reads their memory until the engine is refitted
    for name in sorted(names):
        tensor = weights[name].detach().contiguous()
        _set_weight(trt, refitter, name, tensor, errors)
        pending[name] = tensor
        if not refitter.get_missing_weights():
            _refit_pending(refitter, pending, errors)
    if lacking := sorted(name or "a weight without a name" for name in refitter.get_missing_weights()):
        raise RefitError(missing=tuple(f"{one} (TensorRT wants it with {', '.join(pending)})" for one in lacking))


def _set_weight(trt: Any, refitter: Any, name: str, tensor: torch.Tensor, errors: ErrorCollector) -> None:
    prototype = refitter.get_weights_prototype(name)
    kind = refit_dtypes(trt).get(tensor.dtype)
    if (prototype.dtype, prototype.size) != (kind, tensor.numel()):
        has = f"{prototype.size} elements of {prototype.dtype}"
        raise RefitError(mismatched=(f"{name} ({tensor.numel()} elements of {tensor.dtype}, the plan has {has})",))
    locations = trt.TensorLocation
    where = locations.DEVICE if tensor.is_cuda else locations.HOST
    if tensor.is_cuda:  # TensorRT reads it on another stream: wait until it is computed
        torch.cuda.current_stream(tensor.device).synchronize()
    if not refitter.set_named_weights(name, trt.Weights(kind, tensor.data_ptr(), tensor.numel()), where):
        raise RefitError(mismatched=(f"{name} ({errors.text})",))


def _refit_pending(refitter: Any, pending: dict[str, torch.Tensor], errors: ErrorCollector) -> None:
    """Refit the engine with the weights set, and release them."""
    if not refitter.refit_cuda_engine():
        raise RefitError(mismatched=(f"{', '.join(pending)} ({errors.text})",))
    for name in pending:
        refitter.unset_named_weights(name)
    pending.clear()


def refit_plan(
    flavour: Flavour, plan: bytes | memoryview, stored: bytes | memoryview, weights: Mapping[str, torch.Tensor]
) -> memoryview:
    """Return a plan with other weights; ``stored`` is the content of its facts member.

    Raises:
        IncompatibleEngineError: TensorRT cannot load it, or it does not match its facts.
        NoDeviceError: TensorRT-RTX reports that this machine cannot run it.
        RefitError: TensorRT rejects a weight.
    """
    from trtcache.backends.tensorrt.runner import deserialize

    facts = PlanFacts.read(bytes(stored))
    require_loadable_version(facts, Machine.here(flavour))
    trt = flavour.load()
    logger, router = get_logger(trt)
    runtime, engine = deserialize(trt, flavour, plan, facts)
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

"""A plan that was taken from the cache: loaded on its GPU, or kept in a process that cannot run it."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends.tensorrt.log import logger_of
from trtcache.backends.tensorrt.preflight import Facts, Machine, elsewhere, other_product, require_fit
from trtcache.backends.tensorrt.refit import refit_engine
from trtcache.backends.tensorrt.runtime_cache import RuntimeCache
from trtcache.backends.tensorrt.targets import gpu_here
from trtcache.backends.tuning_cache import learned
from trtcache.errors import NoDeviceError, RefitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import Learned

log = logging.getLogger(__name__)


def engine_of(
    flavour: Flavour,
    plan: bytes | memoryview,
    facts: Facts,
    *,
    device: torch.device,
    weights: Mapping[str, torch.Tensor],
    machine: Machine | None = None,
) -> LoadedPlan | PlanEngine:
    """Return a plan that can be called, or one that is kept for another machine and says why.

    Args:
        flavour: which TensorRT built it.
        plan: its bytes, verified.
        facts: what is stored beside it.
        device: where the model is.
        weights: those that it is to have.
        machine: what is compared; by default this one.

    Raises:
        IncompatibleEngineError: it is of another version, damaged, or not what is stored beside it.
    """
    machine = machine or Machine.here(flavour)
    require_fit(facts, machine)
    why = elsewhere(facts, machine)
    if why is None:
        if product := other_product(facts, machine):
            log.warning("a plan of %s was built for %s: it may be slower here, or not load", flavour.title, product)
        try:
            return LoadedPlan(flavour, plan, facts, device, weights, learned())
        except NoDeviceError as error:
            why = error.why
    log.info("a plan of %s is kept and not loaded: %s", flavour.title, why)
    return PlanEngine(flavour, plan, weights, why, refits=facts.refit)


class LoadedPlan:
    """A plan on its GPU. Experimental: see ``runner.py``."""

    shares_weights: ClassVar[bool] = False  # a plan has its own

    def __init__(
        self,
        flavour: Flavour,
        plan: bytes | memoryview,
        facts: Facts,
        device: torch.device,
        weights: Mapping[str, torch.Tensor],
        store: Learned | None = None,
    ) -> None:
        """Load a plan, and put weights in if it takes any; what it compiles at its first call is kept in ``store``.

        Raises:
            IncompatibleEngineError: TensorRT cannot load it, or it is not what is stored beside it.
            NoDeviceError: TensorRT-RTX says that this machine cannot run it.
            RefitError: TensorRT refuses a weight.
        """
        # TensorRT, which a kept plan does not need.
        from trtcache.backends.tensorrt.place import CudaPlace
        from trtcache.backends.tensorrt.runner import Runner, deserialized

        self._flavour, self.plan, self._facts, self._device = flavour, plan, facts, device
        self.weights, self._store = weights, store
        trt, place = flavour.load(), CudaPlace(device)
        with place.entered():
            # The runtime is kept: it has to live as long as its engine.
            self._runtime, engine = deserialized(trt, flavour, plan)
            if facts.refit:  # whose weights are in it nobody knows
                self._put_in(trt, engine)
            self._compiled = RuntimeCache(engine, flavour, gpu_here(), store if flavour.compiles_at_run else None)
            context = self._compiled.context
            self._runner = Runner(trt, flavour.name, engine, facts, home=device, place=place, context=context)
        weakref.finalize(self, self._compiled.keep)

    def _put_in(self, trt: Any, engine: Any) -> None:
        logger, ears = logger_of(trt)
        with ears.listening() as errors:
            refit_engine(trt, logger, engine, self.weights, self._facts.refittable, errors=errors)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> LoadedPlan:
        """Load the plan once more, with other weights; calls that run on this engine are not disturbed.

        Raises:
            RefitError: the plan takes no other weights, or TensorRT refuses one.
        """
        if not self._facts.refit:
            raise RefitError(mismatched=(_BAKED,))
        return LoadedPlan(self._flavour, self.plan, self._facts, self._device, weights, self._store)

    def parallel(self, calls: int) -> LoadedPlan:  # noqa: ARG002  # each thread has its own context
        """Return this engine: each thread that calls it has a context of its own."""
        return self

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the plan on the caller's stream.

        Raises:
            RunError: TensorRT refuses the call.
        """
        outputs = self._runner.run(inputs)
        self._compiled.has_run()
        return outputs


_BAKED = "all of them: the plan was built with its weights in it (compile the other model: it finds or builds its own)"


class PlanEngine:
    """A verified plan and the weights for it.

    A plan is made and kept on machines that cannot run it, so having one is no error; calling it there is.
    """

    shares_weights: ClassVar[bool] = False  # a plan has its own

    def __init__(
        self,
        flavour: Flavour,
        plan: bytes | memoryview,
        weights: Mapping[str, torch.Tensor],
        why: str,
        *,
        refits: bool = True,
    ) -> None:
        """Keep a plan; ``why`` says what this machine lacks, and ``refits`` whether the plan takes other weights."""
        self._flavour = flavour
        self.plan = plan
        self.weights = weights
        self.why = why
        self._refits = refits

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PlanEngine:  # noqa: ARG002  # nothing is refitted
        """Return the same plan with other weights.

        Raises:
            RefitError: the plan takes no other weights.
            NoDeviceError: a refit is the work of a GPU.
        """
        if not self._refits:
            raise RefitError(mismatched=(_BAKED,))
        raise NoDeviceError(self._flavour.name, "a plan", f"it is refitted on its GPU: {self.why}")

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing runs
        """Raise.

        Raises:
            NoDeviceError: there is nothing to run it on.
        """
        raise NoDeviceError(self._flavour.name, "a plan", f"it runs on its GPU: {self.why}")

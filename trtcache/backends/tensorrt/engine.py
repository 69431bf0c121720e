"""Loaded plans: on their GPU, or stored in a process that cannot run them."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends.tensorrt.log import get_logger
from trtcache.backends.tensorrt.preflight import Machine, PlanFacts, other_product, require_fit, why_not_here
from trtcache.backends.tensorrt.refit import refit_engine
from trtcache.backends.tensorrt.runtime_cache import RuntimeCache
from trtcache.backends.tensorrt.targets import gpu_here
from trtcache.backends.tuning_cache import current_tuning_store
from trtcache.errors import NoDeviceError, RefitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tuning_cache import TuningStore

log = logging.getLogger(__name__)


def load_plan(
    flavour: Flavour,
    plan: bytes | memoryview,
    facts: PlanFacts,
    *,
    device: torch.device,
    weights: Mapping[str, torch.Tensor],
    machine: Machine | None = None,
) -> LoadedPlan | PlanEngine:
    """Return a callable plan, or one for another machine that can only be stored.

    Args:
        flavour: the TensorRT that built it.
        plan: its verified bytes.
        facts: the facts stored beside it.
        device: the model's device.
        weights: the weights to set.
        machine: the machine to compare with; by default this one.

    Raises:
        IncompatibleEngineError: it has another version, is damaged, or does not match the facts.
    """
    machine = machine or Machine.here(flavour)
    require_fit(facts, machine)
    why = why_not_here(facts, machine)
    if why is None:
        if product := other_product(facts, machine):
            log.warning("a plan of %s was built for %s: it may be slower here, or not load", flavour.title, product)
        try:
            return LoadedPlan(flavour, plan, facts, device, weights, current_tuning_store())
        except NoDeviceError as error:
            why = error.why
    log.info("a plan of %s is not loaded: %s", flavour.title, why)
    return PlanEngine(flavour, plan, weights, why, refits=facts.refit)


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
        """Load a plan, and set weights if it is refittable; kernels compiled at its first call go to ``store``.

        Raises:
            IncompatibleEngineError: TensorRT cannot load it, or it does not match the facts.
            NoDeviceError: TensorRT-RTX reports that this machine cannot run it.
            RefitError: TensorRT rejects a weight.
        """
        # These import TensorRT, which a plan that is only stored does not need.
        from trtcache.backends.tensorrt.bindings import CudaDevice
        from trtcache.backends.tensorrt.runner import Runner, deserialize

        self._flavour, self.plan, self._facts, self._device = flavour, plan, facts, device
        self.weights, self._store = weights, store
        trt, place = flavour.load(), CudaDevice(device)
        with place.activate():
            # The runtime must live as long as its engine.
            self._runtime, engine = deserialize(trt, flavour, plan)
            if facts.refit:  # the weights in it are unknown
                self._set_weights(trt, engine)
            self._compiled = RuntimeCache(engine, flavour, gpu_here(), store if flavour.compiles_at_run else None)
            context = self._compiled.context
            self._runner = Runner(trt, flavour.name, engine, facts, home=device, place=place, context=context)
        weakref.finalize(self, self._compiled.keep)

    def _set_weights(self, trt: Any, engine: Any) -> None:
        logger, router = get_logger(trt)
        with router.collect_errors() as errors:
            refit_engine(trt, logger, engine, self.weights, self._facts.refittable, errors=errors)

    def refit(self, weights: Mapping[str, torch.Tensor]) -> LoadedPlan:
        """Load the plan again with other weights; running calls on this engine are unaffected.

        Raises:
            RefitError: the plan is not refittable, or TensorRT rejects a weight.
        """
        if not self._facts.refit:
            raise RefitError(mismatched=(_BAKED,))
        return LoadedPlan(self._flavour, self.plan, self._facts, self._device, weights, self._store)

    def parallel(self, calls: int) -> LoadedPlan:  # noqa: ARG002  # each thread has its own context
        """Return this engine: each thread that calls it has its own context."""
        return self

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the plan on the caller's stream.

        Raises:
            RunError: TensorRT rejects the call.
        """
        outputs = self._runner.run(inputs)
        self._compiled.has_run()
        return outputs


_BAKED = "all of them: the plan was built with its weights in it (compile the other model: it finds or builds its own)"


class PlanEngine:
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
        refits: bool = True,
    ) -> None:
        """Store a plan; ``why`` is what this machine lacks, ``refits`` whether the plan is refittable."""
        self._flavour = flavour
        self.plan = plan
        self.weights = weights
        self.why = why
        self._refits = refits

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PlanEngine:  # noqa: ARG002  # nothing is refitted
        """Return the same plan with other weights.

        Raises:
            RefitError: the plan is not refittable.
            NoDeviceError: a refit needs a GPU.
        """
        if not self._refits:
            raise RefitError(mismatched=(_BAKED,))
        raise NoDeviceError(self._flavour.name, "a plan", f"it is refitted on its GPU: {self.why}")

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing runs
        """Raise.

        Raises:
            NoDeviceError: there is no GPU to run it on.
        """
        raise NoDeviceError(self._flavour.name, "a plan", f"it runs on its GPU: {self.why}")

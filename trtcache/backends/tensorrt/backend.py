"""The ``tensorrt`` and ``tensorrt_rtx`` backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.fitness import Check, Misfit, SelfTest, StoredTarget, activate, gpu_here
from trtcache.backends.onnx_operators import OnnxModel, Range, why_no_onnx
from trtcache.backends.protocol import ENGINE, Artifact, Backend, Capabilities, Engine
from trtcache.backends.tensorrt import preflight
from trtcache.backends.tensorrt.engine import REFITTABLE, UnloadedPlan, load_plan, refit_plan
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS, TENSORRT, TENSORRT_RTX, Flavour, plan_target
from trtcache.backends.tensorrt.preflight import MEMBER, PlanFacts
from trtcache.config.backend_settings import TensorRTSettings
from trtcache.errors import NoDeviceError

if TYPE_CHECKING:
    from torch import fx

    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot


class TensorRTBackend(Backend):
    """The common part of both flavours."""

    flavour: ClassVar[Flavour]
    version: ClassVar[int] = 3
    settings_class = TensorRTSettings
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        # torch.onnx exports attention in a form that TensorRT has kernels for; torch's decomposition has more steps.
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        can_freeze=True,
        accepts=frozenset({"torch", "onnx"}),
    )

    def unavailable(self, device: str) -> str | None:
        """Return what is missing. A model on the CPU can be built for a GPU."""
        if device not in self.capabilities.devices:
            return f"builds from models on CPU and CUDA, not on {device}"
        if why := self.flavour.why_unavailable:
            return why
        if not self.flavour.builds_without_gpu and not torch.cuda.is_available():
            return f"{self.flavour.title} builds on the GPU that the plan is for, and there is none here"
        return None

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return the target of a plan: by default the model's GPU, or the current one for a model on the CPU."""
        return plan_target(requested, self.flavour, gpu_here(device))

    def toolchain(self, device: str) -> Mapping[str, object]:  # noqa: ARG002  # a plan is for a GPU
        """Return the exact versions of TensorRT, with its CUDA, and of what exports to ONNX."""
        return {"torch": torch.__version__, **self.flavour.toolchain}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting affects a plan."""
        return {}

    def check(self, settings: Settings) -> None:
        """Reject settings that this flavour does not support."""
        self.flavour.check(settings)

    def why_not(self, node: fx.Node) -> str | None:
        """Return why torch cannot export a node to ONNX, or None if it can."""
        return why_no_onnx(node)

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:
        """Return the slots whose values a plan contains: all of them unless it is refittable, and then by dtype."""
        if not self.takes_weights(settings):
            return program.interface.slots
        return tuple(slot for slot in program.interface.slots if slot.dtype not in REFITTABLE)

    def freeze(self, settings: Settings) -> Settings | None:
        """Return the settings for a plan that is not refittable, unless the caller has decided."""
        own = settings.section(TensorRTSettings)
        return None if own.refit is not None or own.strip else settings.with_section(replace(own, refit=False))

    def takes_similar(self, settings: Settings) -> bool:
        """Return whether the caller allows plans for another product."""
        return settings.section(TensorRTSettings).compatible == "capability"

    def takes_weights(self, settings: Settings) -> bool:
        """Return whether a plan is refittable; the machine does not matter, as a build farm may have no GPU."""
        own = settings.section(TensorRTSettings)
        wanted = own.refit
        return bool(own.strip) or not self.flavour.builds_without_gpu if wanted is None else wanted

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build a plan."""
        refit = self._refits_here(settings, target)
        from trtcache.backends.tensorrt.build import build_plan  # a hit does not need it

        with activate(program.device):
            return build_plan(self.flavour, program, settings, target, folder, refit=refit)

    def build_onnx(
        self,
        model: OnnxModel,
        interface: Interface,
        ranges: Sequence[Range],
        settings: Settings,
        target: Target,
        folder: Path,
    ) -> Artifact:
        """Build a plan of an ONNX model, with its weights under their names in ``interface``.

        Raises:
            NoDeviceError: the plan is refittable, and there is no GPU to build it on.
            BuildError: the parser or the builder failed.
        """
        refit = self._refits_here(settings, target)
        from trtcache.backends.tensorrt.build import build_onnx_plan  # a hit does not need it

        return build_onnx_plan(
            self.flavour, model, interface, model.inputs, ranges, settings, target, folder, refit=refit
        )

    def _refits_here(self, settings: Settings, target: Target) -> bool:
        refit = self.takes_weights(settings)
        if refit and not torch.cuda.is_available():
            wanted = settings.section(TensorRTSettings).refit
            name = "refit" if wanted else "strip"
            what = "takes other weights" if wanted else "has no weights in it"
            why = f"a plan that {what} is built on a GPU; without one leave settings.tensorrt[{name!r}] out"
            raise NoDeviceError(self.name, target.label, why)
        return refit

    def why_misfit(self, stored: StoredTarget) -> Misfit | None:
        """Return why a plan cannot run here; TensorRT does not have to be able to build here."""
        return preflight.why_misfit(self.flavour, stored)

    def rank(self, target: Mapping[str, Any]) -> int:
        """Return how well a plan fits: higher for a plan for one GPU product, then for fewer GPU generations."""
        capability = str(target.get("capability") or "")
        width = 100 if capability == AMPERE_PLUS else len(capability.split(","))
        return (500 if target.get("gpu") else 0) - width

    def diagnose(self, *, quick: bool) -> Iterator[Check]:  # noqa: ARG002  # all of it is quick
        """Yield whether it is installed, and what it can do here."""
        from trtcache.backends.tensorrt.preflight import diagnose

        return diagnose(self.flavour)

    def selftest(self) -> SelfTest:
        """Return the self-test of this flavour."""
        from trtcache.backends.tensorrt.preflight import PlanSelfTest

        return PlanSelfTest.of(self.flavour)

    def refit_artifact(
        self, read: Callable[[str], bytes | memoryview], weights: Callable[[], Mapping[str, torch.Tensor]]
    ) -> memoryview:
        """Return a plan with other weights. Experimental: not yet run on a GPU."""
        if not torch.cuda.is_available():
            raise NoDeviceError(self.name, "", "it is refitted on its GPU, and there is none here")
        return refit_plan(self.flavour, read(ENGINE), read(MEMBER), weights())

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,  # noqa: ARG002  # a plan runs on a GPU, whatever the model's device
        constants: Mapping[str, torch.Tensor],  # noqa: ARG002  # a plan contains them
        weights: Mapping[str, torch.Tensor],
    ) -> UnloadedPlan:
        """Return a plan that can be stored; without its other members it cannot run."""
        return UnloadedPlan(self.flavour, artifact, weights, "nothing is known of its inputs and outputs")

    def load_entry(
        self,
        read: Callable[[str], bytes | memoryview],
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],  # noqa: ARG002  # a plan contains them
        weights: Mapping[str, torch.Tensor],
    ) -> Engine:
        """Return a live engine on a GPU, or elsewhere a plan that can be stored."""
        facts = PlanFacts.read(bytes(read(MEMBER)))
        with activate(device):
            return load_plan(self.flavour, read(ENGINE), facts, device=device, weights=weights)


class TensorRT(TensorRTBackend):
    """TensorRT 10 and 11: builds on the GPU that a plan is for."""

    name: ClassVar[str] = "tensorrt"
    flavour: ClassVar[Flavour] = TENSORRT


class TensorRTRtx(TensorRTBackend):
    """TensorRT-RTX: builds for named compute capabilities, without a GPU."""

    name: ClassVar[str] = "tensorrt_rtx"
    flavour: ClassVar[Flavour] = TENSORRT_RTX

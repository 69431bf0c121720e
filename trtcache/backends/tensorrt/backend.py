"""The ``tensorrt`` and ``tensorrt_rtx`` backends."""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.backends.members import ENGINE
from trtcache.backends.protocol import Artifact, Backend, Capabilities
from trtcache.backends.tensorrt import torchlib
from trtcache.backends.tensorrt.engine import PlanEngine, engine_of
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.backends.tensorrt.preflight import MEMBER, Facts
from trtcache.backends.tensorrt.targets import gpu_here, plan_target
from trtcache.errors import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import fx

    from trtcache.backends.protocol import Engine
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache.backends.tensorrt.onnx import OnnxModel
    from trtcache.backends.tensorrt.profiles import Range
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot

_BUILDER = 2
"""What ``build.py`` makes of a lowered program. It changes whenever an entry of before would answer otherwise."""


class TensorRTBackend(Backend):
    """What both flavours do."""

    flavour: ClassVar[Flavour]
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        # torch.onnx writes attention in a form that TensorRT has kernels for; torch's own decomposition has more steps.
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        bakes_weights=True,
    )

    def unavailable(self, device: str) -> str | None:
        """Say what is missing. A model on the CPU can be built for a GPU."""
        if device not in self.capabilities.devices:
            return f"builds from models on CPU and CUDA, not on {device}"
        if not self.flavour.installed:
            return self.flavour.missing
        if not self.flavour.builds_without_gpu and not torch.cuda.is_available():
            return f"{self.flavour.title} builds on the GPU that the plan is for, and there is none here"
        return None

    def target(self, requested: str | None, device: torch.device) -> Target:  # noqa: ARG002  # wherever the model is
        """Return what a plan is for."""
        return plan_target(requested, self.flavour, gpu_here())

    def toolchain(self, device: str) -> Mapping[str, object]:  # noqa: ARG002  # a plan is for a GPU
        """Return the exact versions of TensorRT and of what writes ONNX."""
        return {
            "builder": _BUILDER,
            self.flavour.name: self.flavour.version,
            "torch": torch.__version__,
            "onnx": importlib.metadata.version("onnx"),
            "onnxscript": importlib.metadata.version("onnxscript"),
        }

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting changes a plan."""
        return {}

    def check(self, settings: Settings) -> None:
        """Refuse settings that this flavour lacks."""
        self.flavour.check(settings)

    def why_not(self, node: fx.Node) -> str | None:
        """Return why torch cannot write a node as ONNX, or None if it can."""
        return torchlib.why_not(node)

    def frozen(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:
        """Return the slots whose values a plan has in it: all of them where it is not to be refitted."""
        if not self.takes_weights(settings):
            return program.interface.slots
        return tuple(slot for slot in program.interface.slots if not getattr(torch, slot.dtype).is_floating_point)

    def takes_weights(self, settings: Settings) -> bool:
        """Say whether a plan is to take other weights; the machine has no say, for a build farm may have no GPU."""
        wanted = settings.tensorrt.refit
        return bool(settings.tensorrt.strip) or not self.flavour.builds_without_gpu if wanted is None else wanted

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build a plan.

        Raises:
            NoDeviceError: the plan is to take other weights, and there is no GPU to build it on.
        """
        refit = self._refits_here(settings, target)
        from trtcache.backends.tensorrt.build import build_plan  # a hit does not need it

        plan, proof = build_plan(self.flavour, program, settings, target, folder, refit=refit)
        return Artifact(plan, {MEMBER: json.dumps(proof, sort_keys=True).encode()})

    def build_onnx(
        self,
        model: OnnxModel,
        interface: Interface,
        ranges: Sequence[Range],
        settings: Settings,
        target: Target,
        folder: Path,
    ) -> Artifact:
        """Build a plan of what is ONNX already.

        Args:
            model: what is to be built, with its weights under the names that ``interface`` has for them.
            interface: its border and its weights.
            ranges: inputs whose sizes vary.
            settings: the caller's.
            target: what the plan is for.
            folder: where it is to be.

        Raises:
            NoDeviceError: the plan is to take other weights, and there is no GPU to build it on.
            BuildError: the parser or the builder failed.
        """
        refit = self._refits_here(settings, target)
        from trtcache.backends.tensorrt.build import plan_of  # a hit does not need it

        plan, proof = plan_of(
            self.flavour, model, interface, model.inputs, ranges, settings, target, folder, refit=refit
        )
        return Artifact(plan, {MEMBER: json.dumps(proof, sort_keys=True).encode()})

    def _refits_here(self, settings: Settings, target: Target) -> bool:
        refit = self.takes_weights(settings)
        if refit and not torch.cuda.is_available():
            name = "refit" if settings.tensorrt.refit else "strip"
            what = "takes other weights" if settings.tensorrt.refit else "has no weights in it"
            why = f"a plan that {what} is built on a GPU; without one leave settings.tensorrt[{name!r}] out"
            raise NoDeviceError(self.name, target.label, why)
        return refit

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,  # noqa: ARG002  # a plan runs on a GPU wherever the model is
        constants: Mapping[str, torch.Tensor],  # noqa: ARG002  # a plan has them
        weights: Mapping[str, torch.Tensor],
    ) -> PlanEngine:
        """Return a plan that can be kept; without what is stored beside it, it cannot be run."""
        return PlanEngine(self.flavour, artifact, weights, "nothing is known of its inputs and outputs")

    def load_entry(
        self,
        read: Callable[[str], bytes | memoryview],
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],  # noqa: ARG002  # a plan has them
        weights: Mapping[str, torch.Tensor],
    ) -> Engine:
        """Return a plan on its GPU, or elsewhere one that can be kept.

        Raises:
            IncompatibleEngineError: it is of another version, damaged, or not what is stored beside it.
        """
        facts = Facts.read(bytes(read(MEMBER)))
        return engine_of(self.flavour, read(ENGINE), facts, device=device, weights=weights)


class TensorRT(TensorRTBackend):
    """TensorRT 10 and 11: builds on the GPU that a plan is for."""

    name: ClassVar[str] = "tensorrt"
    flavour: ClassVar[Flavour] = TENSORRT


class TensorRTRtx(TensorRTBackend):
    """TensorRT-RTX: builds for named compute capabilities, without a GPU."""

    name: ClassVar[str] = "tensorrt_rtx"
    flavour: ClassVar[Flavour] = TENSORRT_RTX

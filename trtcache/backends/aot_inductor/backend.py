"""The ``aot_inductor`` backend: packages without weights, which share the model's own tensors.

Its keys contain the process-wide settings of Inductor outside ``Settings``: flags of torch, configuration, environment
variables. Importing ``torch._inductor.config`` takes a second. Unless it is imported nothing can have changed it, so
then the environment alone decides; both give the same result for the same configuration.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trtcache.backends.aot_inductor.libtorch import SAME_VERSIONS
from trtcache.backends.aot_inductor.loader import Assumptions, Package, PackageEngine
from trtcache.backends.aot_inductor.variables import environment as environment
from trtcache.backends.protocol import ENGINE, Artifact, Backend, Capabilities
from trtcache.config.inductor_settings import InductorSettings
from trtcache.keys.torch_config import overrides
from trtcache.settings import FROZEN, WEIGHTS
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.weights.slots import Slot

# Inductor chooses the kernel of scaled_dot_product_attention at build time.
_ATTENTION_KERNELS: Mapping[str, Callable[[], bool]] = {
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
    "mem_efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
}


class AotInductor(Backend):
    """torch's ahead-of-time Inductor, on CPU and CUDA."""

    name: ClassVar[str] = "aot_inductor"
    version: ClassVar[int] = 2
    settings_class = InductorSettings
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        # Decomposed, a 6-layer BERT has 240 more nodes and builds in 34 s instead of 13 s (2 cores, torch 2.13).
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        small_sizes=True,
        builds_elsewhere=True,
        torch_threads=True,
        same_versions=SAME_VERSIONS,
        weights=frozenset(WEIGHTS),
    )

    def unavailable(self, device: str) -> str | None:
        """Return what is missing for this device type."""
        if device not in self.capabilities.devices:
            return f"runs on CPU and CUDA, not on {device}"
        if device == "cuda" and not torch.cuda.is_available():
            return "no CUDA device is available; move the model and its inputs to the CPU"
        return None

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named x86-64 level; on CUDA with the device's compute capability."""
        capability = None
        if device.type == "cuda":
            capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
        return resolve_target(requested, device=device.type, capability=capability)

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the exact build of torch and, on CUDA, of CUDA and Triton.

        The C++ compiler is left out: machines that only run engines have none and must hit (``docs/adr/0003``).
        """
        facts: dict[str, object] = {
            "torch": torch.__version__,
            "torch_git": torch.version.git_version,
        }
        if device == "cuda":
            facts |= {"cuda": torch.version.cuda, "triton": _version("triton")}
        return facts

    def ambient(self) -> Mapping[str, object]:
        """Return torch's process-wide flags and Inductor's configuration and environment."""
        return ambient()

    def bakes_weights(self, settings: Settings) -> bool:
        """Return whether a package has its weights in it."""
        return settings.weights == FROZEN

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:
        """Return all slots for a package that has its weights in it, else none."""
        return program.interface.slots if self.bakes_weights(settings) else ()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build a package; it has weights in it if they are frozen."""
        from trtcache.backends.aot_inductor.build import build_package  # a hit does not need it

        return build_package(program, settings, target, folder)

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> PackageEngine:
        """Load a package and set every constant and weight."""
        return PackageEngine(Package(artifact, device), constants, weights)

    def load_entry(
        self,
        read: Callable[[str], bytes | memoryview],
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> PackageEngine:
        """Load a package with Inductor's assumptions about sizes, which are checked on each call."""
        return PackageEngine(Package(read(ENGINE), device, Assumptions.of(read)), constants, weights)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def ambient() -> dict[str, object]:
    """Return process-wide state as part of the key."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "attention": {name: bool(enabled()) for name, enabled in _ATTENTION_KERNELS.items()},
        "environment": environment(os.environ),
        "inductor": dict(sorted(overrides(sys.modules.get("torch._inductor.config")))),
    }


def matmul_precision() -> str:
    """Return the precision of matrix products, also if it was set with the newer of torch's two APIs.

    ``torch.get_float32_matmul_precision`` raises once the two differ (torch 2.13).
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        devices: Any = {"cuda": torch.backends.cuda, "mkldnn": torch.backends.mkldnn}
        return ", ".join(f"{name} {one.matmul.fp32_precision}" for name, one in devices.items())

"""The ``aot_inductor`` backend: packages without weights, which share the model's own tensors."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, ClassVar

import torch

from trtcache.backends.aot_inductor.ambient import ambient
from trtcache.backends.aot_inductor.assumptions import Assumptions
from trtcache.backends.aot_inductor.loader import Package, PackageEngine
from trtcache.backends.members import ENGINE
from trtcache.backends.protocol import Artifact, Backend, Capabilities
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings


_BUILDER = 2
"""Version of ``build.py``. Increment it if a rebuilt artifact would behave differently from a stored one."""


class AotInductor(Backend):
    """torch's ahead-of-time Inductor, on CPU and CUDA."""

    name: ClassVar[str] = "aot_inductor"
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        # Decomposed, a 6-layer BERT has 240 more nodes and builds in 34 s instead of 13 s (2 cores, torch 2.13).
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        small_sizes=True,
        builds_elsewhere=True,
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
        """Return the version of the builder, and the exact build of torch and, on CUDA, of CUDA and Triton.

        The C++ compiler is left out: machines that only run engines have none and must hit (``docs/adr/0003``).
        """
        facts: dict[str, object] = {
            "builder": _BUILDER,
            "torch": torch.__version__,
            "torch_git": torch.version.git_version,
        }
        if device == "cuda":
            facts |= {"cuda": torch.version.cuda, "triton": _version("triton")}
        return facts

    def ambient(self) -> Mapping[str, object]:
        """Return torch's process-wide flags and Inductor's configuration and environment."""
        return ambient()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build a package without weights."""
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

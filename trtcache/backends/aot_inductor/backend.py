"""The ``aot_inductor`` backend: packages without weights, which share the model's own tensors.

Its keys contain the process-wide settings of Inductor outside ``Settings``: flags of torch, configuration, environment
variables. Importing ``torch._inductor.config`` takes a second. Unless it is imported nothing can have changed it, so
then the environment alone decides; both give the same result for the same configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends.aot_inductor.libtorch import INITIAL_AMBIENT, SAME_VERSIONS, torch_folder, torch_versions
from trtcache.backends.aot_inductor.libtorch import environment as environment
from trtcache.backends.aot_inductor.loader import Assumptions, Package, PackageEngine
from trtcache.backends.protocol import ENGINE, Artifact, Backend, Capabilities
from trtcache.config.backend_settings import InductorSettings
from trtcache.errors import IncompatibleEngineError
from trtcache.keys.alias_key import flushes_denormals, overrides, passes
from trtcache.lowering.operators import replaced_functions
from trtcache.settings import FROZEN, PACKED, REFITTABLE, Settings
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    import torch

    from trtcache.backends.fitness import Check, SelfTest
    from trtcache.lowering import LoweredProgram
    from trtcache.weights.slots import Slot

_ATTENTION_KERNELS = ("cudnn", "flash", "math", "mem_efficient")
"""Kernels of scaled_dot_product_attention: Inductor chooses one at build time."""


class AotInductor(Backend):
    """torch's ahead-of-time Inductor, on CPU and CUDA."""

    name: ClassVar[str] = "aot_inductor"
    version: ClassVar[int] = 5
    settings_class = InductorSettings
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        # Decomposed, a 6-layer BERT has 240 more nodes and builds in 34 s instead of 13 s (2 cores, torch 2.13).
        keep=frozenset({"aten.scaled_dot_product_attention"}),
        refit=True,
        small_sizes=True,
        builds_elsewhere=True,
        torch_threads=True,
        without_torch=True,
        same_versions=SAME_VERSIONS,
        weights=frozenset({REFITTABLE, PACKED, FROZEN}),
    )

    def unavailable(self, device: str) -> str | None:
        """Return what is missing for this device type."""
        if device not in self.capabilities.devices:
            return f"runs on CPU and CUDA, not on {device}"
        if torch_folder() is None:
            return "torch is not installed"
        if device == "cuda":
            import torch

            if not torch.cuda.is_available():
                return "no CUDA device is available; move the model and its inputs to the CPU"
        return None

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named x86-64 level; on CUDA with the device's compute capability."""
        capability = None
        if device.type == "cuda":
            import torch

            capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
        return resolve_target(requested, device=device.type, capability=capability)

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the exact build of torch and, on CUDA, of CUDA and Triton.

        The C++ compiler is left out: machines that only run engines have none and must hit (``docs/adr/0003``).
        """
        if device == "cpu" and "torch" not in sys.modules:
            return {name: version for name, version in torch_versions().items() if name != "cuda"}
        import torch

        facts: dict[str, object] = {
            "torch": torch.__version__,
            "torch_git": torch.version.git_version,
        }
        if device == "cuda":
            from trtcache.backends.fitness import distribution_version  # a hit on the CPU does not need it

            facts |= {"cuda": torch.version.cuda, "triton": distribution_version(["triton"])}
        return facts

    def ambient(self) -> Mapping[str, object]:
        """Return torch's process-wide flags and Inductor's configuration and environment."""
        return ambient()

    def diagnose(self, *, quick: bool) -> Iterator[Check]:
        """Yield whether there is a compiler, and whether packages work."""
        from trtcache.backends.aot_inductor.diagnosis import diagnose

        return diagnose(quick=quick)

    def selftest(self) -> SelfTest:
        """Return the self-test of packages."""
        from trtcache.backends.aot_inductor.diagnosis import PackageSelfTest

        return PackageSelfTest(needs="a GPU")

    def bakes_weights(self, settings: Settings) -> bool:
        """Return whether a package has its weights in it."""
        return settings.weights == FROZEN

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:
        """Return all slots for a package that has its weights in it, else none."""
        return program.interface.slots if self.bakes_weights(settings) else ()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build a package; it has weights in it if they are frozen."""
        from trtcache.backends.aot_inductor.build import build_package  # a hit does not need it

        chosen = replace(settings, weights=self.choose_weights(settings.weights, program.device.type))
        return build_package(program, chosen, target, folder)

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

    def refused_sizes(self, read: Callable[[str], bytes | memoryview], sizes: Mapping[int, int]) -> frozenset[int]:
        """Return the sizes about which Inductor assumed something, if it does not hold for the given ones."""
        try:
            assumptions = Assumptions.of(read) if sizes else None
        except IncompatibleEngineError:  # the entry is built again when it is loaded
            return frozenset()
        return assumptions.refused_sizes(sizes) if assumptions is not None else frozenset()


def ambient() -> dict[str, object]:
    """Return process-wide state as part of the key; a process that has not imported torch has that of its start."""
    if "torch" not in sys.modules:
        return {**INITIAL_AMBIENT, "environment": environment(os.environ)}
    import torch

    config = sys.modules.get("torch._inductor.config")
    kernels = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled") for name in _ATTENTION_KERNELS}
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "attention": {name: bool(enabled()) for name, enabled in kernels.items()},
        "environment": environment(os.environ),
        "inductor": dict(sorted(overrides(config))),
        **({"denormals": "flushed"} if flushes_denormals() else {}),
        **({"passes": found} if (found := dict(sorted(passes(config)))) else {}),
        **({"replaced": replaced} if (replaced := replaced_functions()) else {}),
    }


def matmul_precision() -> str:
    """Return the precision of matrix products, also if it was set with the newer of torch's two APIs.

    ``torch.get_float32_matmul_precision`` raises once the two differ (torch 2.13).
    """
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        devices: Any = {"cuda": torch.backends.cuda, "mkldnn": torch.backends.mkldnn}
        return ", ".join(f"{name} {one.matmul.fp32_precision}" for name, one in devices.items())

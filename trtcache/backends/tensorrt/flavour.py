"""The two flavours of TensorRT, with their packages, versions and missing features, and the targets of plans.

A target is a comma-separated list of words: compute capabilities (``sm_89``; several for one plan of TensorRT-RTX),
``ampere+`` for a plan that runs on that generation and all later ones, and a platform (``windows-x86_64``). If the
target is None, the plan is for this machine's GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.backends.fitness import distribution_version
from trtcache.config.backend_settings import TensorRTSettings
from trtcache.config.environment import is_installed
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BackendUnavailableError, SettingsError, did_you_mean
from trtcache.target import Gpu, Target, capability_words, host_platform

if TYPE_CHECKING:
    from trtcache.settings import Settings

AMPERE_PLUS = "ampere+"
WINDOWS = "windows-x86_64"
EXPORTERS = ("onnx", "onnxscript")
"""The packages that write ONNX."""

_CONSTANT_FOLDING_PACKAGES = ("onnx_ir", "numpy", "ml_dtypes")
"""Packages with which the exporters compute constants; older exporters do not use all of them."""

_CAPABILITY = re.compile(r"sm_?(\d+)(\d)")


@frozen_dataclass
class Flavour:
    """TensorRT or TensorRT-RTX.

    Attributes:
        name: the name of the backend and of the module.
        title: NVIDIA's name for it.
        extra: the extra of this package that installs it.
        builds_without_gpu: whether it builds on a machine without a GPU, for a given compute capability.
        lacks: unsupported settings by name, with the reason.
        capabilities: the compute capabilities that it builds for; empty if that depends on the version.
        times_kernels: whether it times kernels while it builds, so that the timings can be stored.
        compiles_at_run: whether it compiles kernels when a plan first runs, so that they can be stored.
    """

    name: str
    title: str
    extra: str
    builds_without_gpu: bool
    lacks: Mapping[str, str]
    capabilities: tuple[str, ...] = ()
    times_kernels: bool = False
    compiles_at_run: bool = False

    @property
    def version(self) -> str:
        """The exact installed version."""
        return self._distribution[1]

    @property
    def cuda(self) -> int | None:
        """The major version of CUDA that it was built for, None if its package's name does not have it."""
        found = re.search(r"_cu(\d+)_", self._distribution[0])
        return int(found[1]) if found else None

    @property
    def toolchain(self) -> dict[str, object]:
        """The versions that a plan depends on, of this flavour and of the packages that export to ONNX."""
        packages = (*EXPORTERS, *_CONSTANT_FOLDING_PACKAGES)
        versions = {package: distribution_version([package]) for package in packages}
        return {self.name: self.version, "cuda": self.cuda, **versions}

    @property
    def _distribution(self) -> tuple[str, str]:
        # The bindings are what is imported; the package of the flavour's name only depends on them.
        for distribution in (f"{self.name}_cu13_bindings", f"{self.name}_cu12_bindings", self.name):
            if version := distribution_version([distribution]):
                return distribution, version
        raise BackendUnavailableError(self.name, self.not_installed_message)

    @property
    def not_installed_message(self) -> str:
        """The message if it is not installed."""
        return f"{self.title} is not installed; pip install 'trtcache[{self.extra}]'"

    @property
    def installed(self) -> bool:
        """Whether its module is installed, without importing it. A folder of that name does not count."""
        return is_installed(self.name)

    @property
    def why_unavailable(self) -> str | None:
        """Why it cannot build: it, or a package that writes ONNX for it, is not installed; None if it can."""
        if not self.installed:
            return self.not_installed_message
        for package in EXPORTERS:
            if distribution_version([package]) is None:
                remedy = f"pip install 'trtcache[{self.extra}]'"
                return f"{package} is not installed, which {self.title} needs for a build; {remedy}"
        return None

    def load(self) -> Any:
        """Import and return its module, which takes 0.1 s and 1 GB of mapped libraries.

        Raises:
            BackendUnavailableError: it is not installed, its libraries do not load, or the imported module has another
                version than the installed distribution, whose version is in cache keys.
        """
        if not self.installed:
            raise BackendUnavailableError(self.name, self.not_installed_message)
        try:
            module = import_module(self.name)
        except (ImportError, OSError) as error:
            raise BackendUnavailableError(self.name, f"{self.title} cannot be loaded: {error}") from error
        imported, (distribution, listed) = str(module.__version__), self._distribution
        if _release(imported) != _release(listed):
            why = f"{module.__file__} is version {imported}, and {distribution} is installed as version {listed}"
            raise BackendUnavailableError(self.name, f"{self.title}: {why}; reinstall {distribution}")
        return module

    def check(self, settings: Settings) -> None:
        """Reject settings that this flavour does not support.

        Raises:
            SettingsError: the message names the setting and what to do.
        """
        for name in settings.section(TensorRTSettings).explicit:
            if name in self.lacks:
                raise SettingsError(f"settings.tensorrt[{name!r}]", f"{self.title}: {self.lacks[name]}")


TENSORRT = Flavour(
    name="tensorrt",
    title="TensorRT",
    extra="tensorrt",
    builds_without_gpu=False,
    lacks={},
    times_kernels=True,
)

TENSORRT_RTX = Flavour(
    name="tensorrt_rtx",
    title="TensorRT-RTX",
    extra="tensorrt-rtx",
    builds_without_gpu=True,
    lacks={
        # The build needs libnvinfer_lean.so, which it does not ship (1.7).
        "version_compatible": "its plans are for one version; leave the setting out and build for each",
        "avg_timing_iterations": "it times no kernels while it builds; leave the setting out",
        "compatible": "its plans run on every GPU of a compute capability; leave the setting out",
    },
    capabilities=("7.5", "8.0", "8.6", "8.9", "12.0", "12.1"),
    compiles_at_run=True,
)


def _release(version: str) -> str:
    """Return a version without the suffix of its packaging, such as ``.post1`` or ``+cu13``."""
    return re.split(r"\.post|\+", version)[0]


def plan_target(requested: str | None, flavour: Flavour, gpu: Gpu | None) -> Target:
    """Parse a target; ``requested`` is None for ``gpu``, the GPU of this machine, which is None if it has no GPU.

    Raises:
        SettingsError: a word is not a target, the flavour cannot build for it here, or it is for this machine's GPU
            and there is none.
    """
    words = _words(requested)
    platform = host_platform()
    if WINDOWS in words:
        if flavour.builds_without_gpu:
            raise SettingsError(f"target {WINDOWS!r}", f"{flavour.title} builds for the platform that it runs on")
        words.remove(WINDOWS)
        platform = WINDOWS
    if AMPERE_PLUS in words:
        label = f"target {AMPERE_PLUS!r}"
        if flavour.builds_without_gpu:
            several = ",".join(map(capability_words, flavour.capabilities[1:4]))
            raise SettingsError(label, f"{flavour.title} has no such plans; name several capabilities: {several}")
        if len(words) > 1:
            raise SettingsError(label, "it includes every GPU from Ampere on; name no other target")
        return Target(platform, "cuda", "plan", (), AMPERE_PLUS)
    requested_capabilities = {_capability(word, flavour) for word in words}
    capabilities = tuple(
        sorted(requested_capabilities, key=lambda capability: [int(part) for part in capability.split(".")])
    )
    if len(capabilities) > 1 and not flavour.builds_without_gpu:
        raise SettingsError(f"target {requested!r}", f"{flavour.title} builds a plan for one GPU at a time")
    if flavour.builds_without_gpu and (capabilities or gpu):
        if not capabilities and gpu is not None:
            capabilities = (_known_capability(gpu.capability, flavour, f"target {gpu.product!r}, this machine's GPU"),)
        return Target(platform, "cuda", "plan", (), ",".join(capabilities))
    return _for_this_gpu(requested, platform, capabilities, flavour, gpu)


def _words(requested: str | None) -> list[str]:
    if requested is not None and not isinstance(requested, str):
        raise SettingsError("target", f"expected text such as 'sm_86,sm_89', got {requested!r}")
    words = [word.strip().lower() for word in requested.split(",")] if requested else []
    if not all(words):
        raise SettingsError(f"target {requested!r}", "a word is empty; put one comma between words: sm_86,sm_89")
    return words


def _for_this_gpu(
    requested: str | None, platform: str, capabilities: Sequence[str], flavour: Flavour, gpu: Gpu | None
) -> Target:
    label = f"target {requested!r}" if requested else "target"
    if gpu is None:
        known = ", ".join(map(capability_words, flavour.capabilities)) or "sm_89"
        remedy = f"name what the plan is for: {known}" if flavour.builds_without_gpu else "build on the GPU's machine"
        raise SettingsError(label, f"there is no NVIDIA GPU here; {remedy}")
    if capabilities and tuple(capabilities) != (gpu.capability,):
        raise SettingsError(
            label,
            f"{flavour.title} builds for this machine's GPU only, {gpu.product} ({capability_words(gpu.capability)})",
        )
    return Target(platform, "cuda", "plan", (), gpu.capability, gpu)


def capabilities_of(target: Target) -> tuple[str, ...]:
    """Return the compute capabilities of a target; empty for ``ampere+``."""
    if target.capability is None or target.capability == AMPERE_PLUS:
        return ()
    return tuple(target.capability.split(","))


def _capability(word: str, flavour: Flavour) -> str:
    match = _CAPABILITY.fullmatch(word)
    known = [*map(capability_words, flavour.capabilities)]
    if match is None:
        raise SettingsError(f"target {word!r}", did_you_mean(word, [*(known or ["sm_89"]), AMPERE_PLUS, WINDOWS]))
    return _known_capability(f"{match[1]}.{match[2]}", flavour, f"target {word!r}")


def _known_capability(capability: str, flavour: Flavour, label: str) -> str:
    """Return a compute capability.

    Raises:
        SettingsError: the flavour does not build for it.
    """
    if flavour.capabilities and capability not in flavour.capabilities:
        known = ", ".join(map(capability_words, flavour.capabilities))
        raise SettingsError(label, f"{flavour.title} builds for {known}")
    return capability

"""The two flavours of TensorRT: their packages, installed versions and missing features."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trtcache.config.version import is_installed
from trtcache.errors import BackendUnavailableError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.settings import Settings


@dataclass(frozen=True, slots=True)
class Flavour:
    """One of the two TensorRTs.

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
        """The exact installed version.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        return self._distribution[1]

    @property
    def cuda(self) -> int | None:
        """The major version of CUDA that it was built for, None if its package's name does not have it.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        found = re.search(r"_cu(\d+)_", self._distribution[0])
        return int(found[1]) if found else None

    @property
    def _distribution(self) -> tuple[str, str]:
        # The bindings are what is imported; the package of the flavour's name only depends on them.
        for distribution in (f"{self.name}_cu13_bindings", f"{self.name}_cu12_bindings", self.name):
            try:
                return distribution, importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        raise BackendUnavailableError(self.name, self.missing)

    @property
    def missing(self) -> str:
        """The message if it is not installed."""
        return f"{self.title} is not installed; pip install 'trtcache[{self.extra}]'"

    @property
    def installed(self) -> bool:
        """Whether its module is installed, without importing it. A folder of that name does not count."""
        return is_installed(self.name)

    def load(self) -> Any:
        """Import and return its module, which takes 0.1 s and 1 GB of mapped libraries.

        Raises:
            BackendUnavailableError: it is not installed, or its libraries do not load.
        """
        if not self.installed:
            raise BackendUnavailableError(self.name, self.missing)
        try:
            return import_module(self.name)
        except (ImportError, OSError) as error:
            raise BackendUnavailableError(self.name, f"{self.title} cannot be loaded: {error}") from error

    def check(self, settings: Settings) -> None:
        """Reject settings that this flavour does not support.

        Raises:
            SettingsError: the message names the setting and what to do.
        """
        for name in settings.tensorrt.explicit:
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
        "avg_timing_iterations": "it times nothing while it builds; leave the setting out",
        "compatible": "its plans are for capabilities, whatever the product; leave the setting out",
    },
    capabilities=("7.5", "8.0", "8.6", "8.9", "12.0", "12.1"),
    compiles_at_run=True,
)

"""The backend whose engines run in processes without torch, and what runs them there: AOTInductor's, on the CPU.

Each name is loaded on first use: torch's libraries are loaded while the rest is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.backends.aot_inductor.host_engine import HostEngine as HostEngine
    from trtcache.backends.aot_inductor.host_engine import HostWeights as HostWeights
    from trtcache.backends.aot_inductor.host_engine import check_arrays as check_arrays
    from trtcache.backends.aot_inductor.host_engine import library_of as library_of
    from trtcache.backends.aot_inductor.host_engine import make_weights as make_weights
    from trtcache.backends.aot_inductor.libtorch import INITIAL_AMBIENT as INITIAL_AMBIENT
    from trtcache.backends.aot_inductor.libtorch import LibTorch as LibTorch
    from trtcache.backends.aot_inductor.libtorch import environment as environment
    from trtcache.backends.aot_inductor.libtorch import libtorch as libtorch
    from trtcache.backends.aot_inductor.libtorch import preload as preload
    from trtcache.backends.aot_inductor.libtorch import torch_environment as torch_environment
    from trtcache.backends.aot_inductor.libtorch import torch_versions as torch_versions
    from trtcache.backends.aot_inductor.loader import Assumptions as Assumptions
    from trtcache.backends.fitness import Misfit, StoredTarget

NAME = "aot_inductor"

_EXPORTS = {
    "Assumptions": ".loader",
    "HostEngine": ".host_engine",
    "INITIAL_AMBIENT": ".libtorch",
    "HostWeights": ".host_engine",
    "LibTorch": ".libtorch",
    "check_arrays": ".host_engine",
    "environment": ".libtorch",
    "library_of": ".host_engine",
    "libtorch": ".libtorch",
    "make_weights": ".host_engine",
    "preload": ".libtorch",
    "torch_environment": ".libtorch",
    "torch_versions": ".libtorch",
}


class HostFitness:
    """The fitness of packages, by torch's files: nothing is imported."""

    def why_misfit(self, stored: StoredTarget) -> Misfit | None:
        """Return why a package cannot run here, or None if it can."""
        from trtcache.backends.aot_inductor.libtorch import SAME_VERSIONS, torch_versions
        from trtcache.backends.fitness import compare_with_here

        return compare_with_here(stored, torch_versions(), SAME_VERSIONS)

    def rank(self, target: Mapping[str, Any]) -> int:
        """Return the number of instruction sets that it uses."""
        return len(target["instruction_sets"])


__getattr__ = lazy_names(__name__, _EXPORTS, package="trtcache.backends.aot_inductor")

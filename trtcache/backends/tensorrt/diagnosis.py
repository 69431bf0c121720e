"""The checks of ``trtcache doctor`` and the self-test of TensorRT and TensorRT-RTX."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trtcache.backends.diagnosis import Check, SelfTest, check_distribution
from trtcache.backends.gpu import gpu_here
from trtcache.backends.tensorrt.flavour import TENSORRT
from trtcache.backends.tensorrt.preflight import MEMBER
from trtcache.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trtcache.backends.tensorrt.flavour import Flavour

_TARGET = "sm_89"
"""The target of a self-test on a machine without a GPU that TensorRT-RTX supports."""

_NEVER = "0.0.0"


def diagnose(flavour: Flavour) -> Iterator[Check]:
    """Yield whether a flavour is installed, and what it can do here."""
    package, title = flavour.name.replace("_", "-"), f"backend {flavour.name}"
    yield check_distribution(flavour.name, (package, f"{package}-cu13", f"{package}-cu12"))
    if flavour.why_unavailable:
        yield Check(title, "missing", "can do nothing", f"pip install 'trtcache[{flavour.extra}]'")
    elif torch.cuda.is_available():
        where = " on an RTX GPU" if flavour.builds_without_gpu else ""
        yield Check(title, "ok", f"can build; running and refit{where} are experimental")
    elif flavour.builds_without_gpu:
        yield Check(title, "ok", "can build for a named compute capability")
    else:
        yield Check(title, "missing", "can do nothing", "it needs an NVIDIA GPU")


@dataclass(frozen=True)
class PlanSelfTest(SelfTest):
    """The self-test of plans. TensorRT may round the factors of float32 products to TF32, with 10 bits."""

    flavour: Flavour = TENSORRT
    tolerance: float = 5e-3

    @classmethod
    def of(cls, flavour: Flavour) -> PlanSelfTest:
        """Return the self-test of a flavour on this machine.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        if why := flavour.why_unavailable:
            raise BackendUnavailableError(flavour.name, why)
        gpu, refit = gpu_here(), {"tensorrt": {"refit": True}}
        if not flavour.builds_without_gpu:
            return cls("cuda", needs="an NVIDIA GPU", refit_settings=refit, flavour=flavour)
        target = None if gpu and gpu.capability in flavour.capabilities else _TARGET
        return cls(target=target, needs="an RTX GPU", refit_settings=refit, flavour=flavour)

    def facts(self) -> Mapping[str, str]:
        """Return its version, that of CUDA, and how long it takes to load."""
        start = time.perf_counter()
        self.flavour.load()
        cuda = f" for CUDA {self.flavour.cuda}" if self.flavour.cuda else ""
        took_s = time.perf_counter() - start
        return {self.flavour.title: f"{self.flavour.version}{cuda}, loaded in {took_s:.1f} s"}

    def members_of_another_version(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what is stored beside a plan, with another version of TensorRT."""
        return {MEMBER: json.dumps({**json.loads(members[MEMBER]), "version": _NEVER}).encode()}

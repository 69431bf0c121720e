"""Machine description for the self-test: versions and devices, without paths, hosts or users."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

import torch

from trtcache.backends import registry
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX, gpu_here
from trtcache.backends.tensorrt.preflight import driver_cuda
from trtcache.config.environment import installed_version
from trtcache.target import capability_words
from trtcache_cli import probes

if TYPE_CHECKING:
    from trtcache.backends.tensorrt.flavour import Flavour
    from trtcache_cli.selftest_subject import Subject

FLAVOURS = {flavour.name: flavour for flavour in (TENSORRT, TENSORRT_RTX)}


def environment(subject: Subject) -> tuple[str, dict[str, str]]:
    """Return a summary of the machine, and all facts.

    Raises:
        BackendUnavailableError: the backend cannot build here.
    """
    target = "none"
    if not lacks_gpu(subject):
        backend = registry.find(subject.backend, subject.device)
        target = backend.target(subject.target, torch.device(subject.device)).label
    facts = {
        "trtcache": installed_version(),
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "GPU": _gpu(),
        "driver": _driver(),
        "model on": subject.device,
        "target": target,
    }
    facts |= {
        name: found for name in ("onnx", "onnxscript", "triton") if (found := probes.distribution_version((name,)))
    }
    if flavour := FLAVOURS.get(subject.backend):
        facts[flavour.title] = _describe_library(flavour)
    else:
        facts["C++ compiler"] = probes.compiler().found.partition(" at ")[0]
    return f"{facts.get(flavour.title if flavour else 'torch')}; GPU: {facts['GPU']}", facts


def lacks_gpu(subject: Subject) -> bool:
    """Return whether the model needs a GPU that is not available."""
    return subject.device == "cuda" and not torch.cuda.is_available()


def default_target(backend: str) -> str | None:
    """Return the build target: None for this machine, a common capability for TensorRT-RTX without a supported GPU."""
    if backend != TENSORRT_RTX.name:
        return None
    gpu = gpu_here()
    return None if gpu and gpu.capability in TENSORRT_RTX.capabilities else "sm_89"


def _gpu() -> str:
    gpu = gpu_here()
    if gpu is None:
        return "none"
    where = f"{capability_words(gpu.capability)}, {gpu.multiprocessors} multiprocessors, {gpu.memory_gib} GiB"
    return f"{gpu.product} ({where})"


def _driver() -> str:
    cuda = driver_cuda()
    return "none" if cuda is None else f"{probes.gpu().found.rpartition(', ')[2]}, for CUDA {cuda}"


def _describe_library(flavour: Flavour) -> str:
    start = time.perf_counter()
    flavour.load()
    cuda = f" for CUDA {flavour.cuda}" if flavour.cuda else ""
    return f"{flavour.version}{cuda}, loaded in {time.perf_counter() - start:.1f} s"

"""Machine description for the self-test: versions and devices, without paths, hosts or users."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

from trtcache.backends import registry
from trtcache.backends.fitness import distribution_version, driver_cuda, gpu_here
from trtcache.config.environment import installed_version
from trtcache.target import capability_words
from trtcache_cli import probes

if TYPE_CHECKING:
    from trtcache_cli.selftest_subject import Subject


def environment(subject: Subject) -> tuple[str, dict[str, str]]:
    """Return a summary of the machine, and all facts."""
    target, backend = "none", registry.load_backend(subject.backend)
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
    facts |= {name: found for name in ("onnx", "onnxscript", "triton") if (found := distribution_version((name,)))}
    toolchain = {name: str(version) for name, version in backend.toolchain(subject.device).items()}
    facts = {**toolchain, **facts, **backend.selftest().facts()}
    library = next(iter(toolchain), "torch")
    return f"{library} {toolchain.get(library, torch.__version__)}; GPU: {facts['GPU']}", facts


def lacks_gpu(subject: Subject) -> bool:
    """Return whether the model needs a GPU that is not available."""
    return subject.device == "cuda" and not torch.cuda.is_available()


def _gpu() -> str:
    gpu = gpu_here()
    if gpu is None:
        return "none"
    where = f"{capability_words(gpu.capability)}, {gpu.multiprocessors} multiprocessors, {gpu.memory_gib} GiB"
    return f"{gpu.product} ({where})"


def _driver() -> str:
    cuda = driver_cuda()
    return "none" if cuda is None else f"{probes.driver_version() or 'unknown version'}, for CUDA {cuda}"

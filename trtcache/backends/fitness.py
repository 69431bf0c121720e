"""Whether a stored engine can run in this process, and what ``trtcache doctor`` learns from a backend."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.target import Gpu, capability_words, host_flags, levels_of

if TYPE_CHECKING:
    import torch

    from trtcache.backends.protocol import Backend


_GIB = 1 << 30


def gpu_here(device: torch.device | None = None) -> Gpu | None:
    """Return a CUDA device, None if torch has none: ``device``, or the current one if it is on the CPU or None."""
    import torch

    if not torch.cuda.is_available():
        return None
    index = device.index if device is not None and device.type == "cuda" else None
    found = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    memory_gib = round(found.total_memory / _GIB)
    return Gpu(found.name, f"{found.major}.{found.minor}", found.multi_processor_count, memory_gib)


def activate(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager that makes ``device`` the current CUDA device, if it is one."""
    import torch

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def driver_cuda(library: str = "libcuda.so.1") -> int | None:
    """Return the major version of CUDA that the NVIDIA driver supports, None without a driver."""
    found = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else found.value // 1000


Status: TypeAlias = Literal["ok", "note", "missing", "bad"]


@frozen_dataclass
class Check:
    """One finding.

    ``bad`` has to be fixed and makes ``doctor`` exit with 1; ``note`` and ``missing`` are informational.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class SelfTest:
    """How ``trtcache selftest`` tests a backend. Derive a class for facts or for members with versions of their own.

    Attributes:
        device: the device type of the model, unless ``--device`` names another.
        target: the target of its engines; None for this machine.
        tolerance: the largest difference of an output from torch's.
        needs: what its engines run on, for the step that cannot run here.
        refit_settings: settings of an engine that takes other weights, if one with other settings does not.
    """

    device: str = "cpu"
    target: str | None = None
    tolerance: float = 1e-4
    needs: str = "a device that is not here"
    refit_settings: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> Mapping[str, str]:
        """Return facts about the installation for the report, besides the toolchain."""
        return {}

    def members_of_another_version(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:  # noqa: ARG002  # a default
        """Return the members of an entry that have a version in them, with another one; a load MUST refuse those."""
        return {}


def reasons_by_device(backend: Backend) -> dict[str, str | None]:
    """Return for each device type of a backend why it cannot run here, or None if it can."""
    return {device: backend.unavailable(device) for device in sorted(backend.capabilities.devices)}


def state_of(reasons: Mapping[str, str | None]) -> str:
    """Return the state of a backend in words: ``ready``, or the reasons why it is not."""
    ready = [device for device, why in reasons.items() if why is None]
    whys = {why: device for device, why in reasons.items() if why is not None}
    if not whys:
        return "ready"
    if not ready:
        return "; ".join(whys)
    return "; ".join([f"ready on {' and '.join(ready)}", *(f"{device}: {why}" for why, device in whys.items())])


def check_availability(backend: Backend) -> Check:
    """Return the check whether a backend can build here on any of its devices."""
    reasons = reasons_by_device(backend)
    status: Status = "ok" if None in reasons.values() else "missing"
    return Check(f"backend {backend.name}", status, state_of(reasons))


def distribution_version(candidates: Sequence[str]) -> str | None:
    """Return the version of the first of these distributions that is installed."""
    from importlib import metadata

    for candidate in candidates:
        try:
            return metadata.version(candidate)
        except metadata.PackageNotFoundError:
            continue
    return None


def check_distribution(name: str, candidates: Sequence[str]) -> Check:
    """Return the check whether one of these distributions is installed."""
    version = distribution_version(candidates)
    return Check(name, "missing", "not installed") if version is None else Check(name, "ok", version)


@frozen_dataclass
class StoredTarget:
    """One target of an exported program.

    Attributes:
        number: its index in the file.
        backend: the backend of its engines.
        label: the target in readable form.
        target, toolchain: as in the key.
        member: reads a member of the first engine's entry by name; None without engines.
    """

    number: int
    backend: str
    label: str
    target: dict[str, Any]
    toolchain: dict[str, Any]
    member: Callable[[str], bytes] | None


class Distance(IntEnum):
    """What is missing here for an engine: smaller if less has to be done."""

    DRIVER = 10
    PACKAGE = 20
    VERSION = 30
    PROCESSOR = 40
    GPU = 50
    BACKEND = 60
    PLATFORM = 90


@frozen_dataclass
class Misfit:
    """Why an engine cannot run here, the remedy, and what is missing."""

    why: str
    remedy: str
    distance: Distance


class Fitness(Protocol):
    """A backend, as far as the choice of a stored engine needs it."""

    def why_misfit(self, stored: StoredTarget) -> Misfit | None:
        """Return why a stored engine cannot run here, or None if it can."""
        ...

    def rank(self, target: Mapping[str, Any]) -> int:
        """Return how well an engine for a target fits; of several that can run here, the highest is used."""
        ...


def compare_with_here(
    stored: StoredTarget, versions: Mapping[str, Any], names: tuple[str, ...] | None
) -> Misfit | None:
    """Compare the versions, instruction sets and GPU of an engine with this process's.

    Args:
        stored: the engine.
        versions: the versions here.
        names: those that have to be equal; None for all of them.
    """
    for name in sorted({*stored.toolchain, *versions}) if names is None else names:
        built, here = stored.toolchain.get(name), versions.get(name)
        if built != here and (built is not None or names is None):
            what = {"torch_git": "torch", "builder": f"version {stored.backend}"}.get(name, name)
            why = f"it was built with {what} {built}, and this is {what} {here}"
            return Misfit(why, f"run it with {what} {built}, or export it again with {what} {here}", Distance.VERSION)
    lacks = sorted(set(stored.target["instruction_sets"]) - set(host_flags()))
    if lacks:
        level = next(iter(levels_of(host_flags())), "x86-64")
        why = f"this machine's processor lacks {', '.join(lacks)}"
        return Misfit(
            why, f"export it for less: trtcache export FILE.pt2 --target {level} -o OUT.pt2", Distance.PROCESSOR
        )
    return _compare_gpus(str(stored.target.get("capability"))) if stored.target["device"] == "cuda" else None


def _compare_gpus(capability: str) -> Misfit | None:
    gpu, wanted = gpu_here(), capability_words(capability)
    if gpu is not None and gpu.capability == capability:
        return None
    here = f"{gpu.product} ({capability_words(gpu.capability)})" if gpu else "none"
    why = f"it is for {wanted}, and the GPU here is {here}"
    return Misfit(why, f"run it on a GPU of {wanted}, or export it on this one", Distance.GPU)

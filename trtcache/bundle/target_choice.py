"""Choice of a program's target for this process, and the remedy if none fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from trtcache.backends import registry
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS, TENSORRT, TENSORRT_RTX, gpu_here
from trtcache.backends.tensorrt.preflight import MEMBER, PlanFacts, require_fit, why_not_here
from trtcache.backends.tensorrt.preflight import Machine as PlanMachine
from trtcache.digests import canonical
from trtcache.errors import BackendUnavailableError, IncompatibleEngineError, NoFittingEngineError
from trtcache.target import capability_words, host_flags, host_platform, levels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_FLAVOURS = {one.name: one for one in (TENSORRT, TENSORRT_RTX)}


@dataclass(frozen=True, slots=True)
class TargetOption:
    """One target of a program.

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


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a target cannot run here, the remedy, and its distance: smaller if less has to be done."""

    why: str
    remedy: str
    distance: int


Versions: TypeAlias = "tuple[Mapping[str, Any], tuple[str, ...] | None]"
"""The versions here, and the names of those that have to be equal; None: all of them."""


def _versions_here(backend: str, device: str) -> Versions:
    found = registry.find(backend, device)
    return cast("Mapping[str, Any]", canonical(found.versions(device))), found.capabilities.same_versions


def choose(
    options: Sequence[TargetOption], path: str, versions_of: Callable[[str, str], Versions] = _versions_here
) -> TargetOption:
    """Return the target that fits best.

    Args:
        options: the targets.
        path: the file, for messages.
        versions_of: returns the versions of a backend for a device type.

    Raises:
        NoFittingEngineError: none fits; it has the reason for each, and the simplest remedy.
    """
    found = [(option, why_rejected(option, versions_of)) for option in options]
    fitting = [option for option, rejection in found if rejection is None]
    if fitting:
        return max(fitting, key=lambda option: (*rank(option), -option.number))
    reasons = tuple(f"{option.label}: {rejection.why}" for option, rejection in found if rejection is not None)
    nearest = min(
        (rejection for _, rejection in found if rejection is not None),
        key=lambda rejection: rejection.distance,
        default=None,
    )
    remedy = nearest.remedy if nearest else "export it again"
    raise NoFittingEngineError(path, "none of its engines can run here", reasons, remedy)


def rank(option: TargetOption) -> tuple[int, int]:
    """Return how well a target fits: a GPU before a CPU.

    An engine for a CPU is better the more of its instruction sets it uses; a plan the fewer GPUs it is for.
    """
    target = option.target
    if target["device"] != "cuda":
        return 0, len(target["instruction_sets"])
    capability = str(target.get("capability") or "")
    width = 100 if capability == AMPERE_PLUS else len(capability.split(","))
    return 1, (1000 if target.get("gpu") else 500) - width


def why_rejected(
    option: TargetOption, versions_of: Callable[[str, str], Versions] = _versions_here
) -> Rejection | None:
    """Return why a target cannot run here, or None if it can."""
    platform, device = option.target.get("platform"), str(option.target.get("device"))
    if option.member is None:  # everything runs in torch
        return None
    if platform != host_platform():
        remedy = f"export it for this machine: trtcache export FILE.pt2 -o OUT.pt2, on {host_platform()}"
        return Rejection(f"it is for {platform}, and this is {host_platform()}", remedy, 90)
    if option.backend in _FLAVOURS:
        return _plan(option)
    try:
        versions = versions_of(option.backend, device)
    except BackendUnavailableError as error:
        return Rejection(error.why, f"make {option.backend} available here, or export it for this machine's target", 60)
    return _package(option, versions)


def _package(option: TargetOption, versions: Versions) -> Rejection | None:
    """Return why code compiled for a processor or for CUDA cannot run here."""
    facts, names = versions
    for name in sorted({*option.toolchain, *facts}) if names is None else names:
        built, here = option.toolchain.get(name), facts.get(name)
        if built != here and (built is not None or names is None):
            what = {"torch_git": "torch", "builder": f"version {option.backend}"}.get(name, name)
            why = f"it was built with {what} {built}, and this is {what} {here}"
            return Rejection(why, f"run it with {what} {built}, or export it again with {what} {here}", 30)
    lacks = sorted(set(option.target["instruction_sets"]) - set(host_flags()))
    if lacks:
        level = next(iter(levels_of(host_flags())), "x86-64")
        why = f"this machine's processor lacks {', '.join(lacks)}"
        return Rejection(why, f"export it for less: trtcache export FILE.pt2 --target {level} -o OUT.pt2", 40)
    if option.target["device"] == "cuda":
        gpu, wanted = gpu_here(), str(option.target.get("capability"))
        if gpu is None or gpu.capability != wanted:
            here = f"{gpu.product} ({capability_words(gpu.capability)})" if gpu else "none"
            why = f"it is for {capability_words(wanted)}, and the GPU here is {here}"
            return Rejection(why, f"run it on a GPU of {capability_words(wanted)}, or export it on this one", 50)
    return None


def _plan(option: TargetOption) -> Rejection | None:
    """Return why a TensorRT plan cannot run here."""
    flavour = _FLAVOURS[option.backend]
    if not flavour.installed:
        return Rejection(flavour.missing, f"pip install 'trtcache[{flavour.extra}]'", 20)
    machine = PlanMachine.here(flavour)
    assert option.member is not None  # noqa: S101  # it has engines
    try:
        facts = PlanFacts.read(option.member(MEMBER))
        require_fit(facts, machine)
    except IncompatibleEngineError as error:
        version = f"{flavour.title} {option.toolchain.get(flavour.name)}"
        return Rejection(error.why, f"install {version}, or export it again with {machine.version}", 30)
    why = why_not_here(facts, machine)
    if not why:
        return None
    if "driver" in why:
        return Rejection(why, "install a later NVIDIA driver", 10)
    words, gpu = capability_words(str(option.target.get("capability") or "")), gpu_here()
    again = f", or export it for this one: --target {capability_words(gpu.capability)}" if gpu else ""
    return Rejection(why, f"run it on a machine with a GPU of {words}{again}", 50)

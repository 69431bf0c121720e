"""Which of a program's targets can run in this process, which fits best, and what to do where none does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.backends.tensorrt.preflight import MEMBER, Facts, elsewhere, require_fit
from trtcache.backends.tensorrt.preflight import Machine as PlanMachine
from trtcache.backends.tensorrt.targets import AMPERE_PLUS, gpu_here
from trtcache.errors import BackendUnavailableError, IncompatibleEngineError, NoFittingEngineError
from trtcache.target import capability_words, host_flags, host_platform, levels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FLAVOURS = {one.name: one for one in (TENSORRT, TENSORRT_RTX)}


@dataclass(frozen=True, slots=True)
class Offer:
    """One target of a program.

    Attributes:
        number: its place in the file.
        backend: whose engines they are.
        label: the target in words.
        target, toolchain: as they stand in the key.
        member: reads what is stored beside the first engine, by name; None where there is no engine.
    """

    number: int
    backend: str
    label: str
    target: dict[str, Any]
    toolchain: dict[str, Any]
    member: Callable[[str], bytes] | None


@dataclass(frozen=True, slots=True)
class No:
    """Why a target cannot run here, what to do, and how near it is: the smaller the less there is to do."""

    why: str
    remedy: str
    distance: int


def choose(offers: Sequence[Offer], path: str) -> Offer:
    """Return the target that fits best.

    Raises:
        NoFittingEngineError: none does; it has the reason for each, and what is the least to do.
    """
    found = [(offer, refused(offer)) for offer in offers]
    fitting = [offer for offer, no in found if no is None]
    if fitting:
        return max(fitting, key=lambda offer: (*rank(offer), -offer.number))
    reasons = tuple(f"{offer.label}: {no.why}" for offer, no in found if no is not None)
    nearest = min((no for _, no in found if no is not None), key=lambda no: no.distance, default=None)
    remedy = nearest.remedy if nearest else "export it again"
    raise NoFittingEngineError(path, "none of its engines can run here", reasons, remedy)


def rank(offer: Offer) -> tuple[int, int]:
    """Return how well a target that fits does so: a GPU before a CPU.

    An engine for a CPU is the better the more of its instructions it uses; a plan the fewer GPUs it is for.
    """
    target = offer.target
    if target["device"] != "cuda":
        return 0, len(target["instruction_sets"])
    capability = str(target.get("capability") or "")
    width = 100 if capability == AMPERE_PLUS else len(capability.split(","))
    return 1, (1000 if target.get("gpu") else 500) - width


def refused(offer: Offer) -> No | None:
    """Return why a target cannot run here, or None if it can."""
    target = offer.target
    if offer.member is None:  # torch runs all of it
        return None
    if target.get("platform") != host_platform():
        why = f"it is for {target.get('platform')}, and this is {host_platform()}"
        return No(why, f"export it for this machine: trtcache export FILE.pt2 -o OUT.pt2, on {host_platform()}", 90)
    if offer.backend in _FLAVOURS:
        return _plan(offer)
    try:
        backend = registry.find(offer.backend, str(target.get("device")))
    except BackendUnavailableError as error:
        return No(error.why, f"make {offer.backend} available here, or export it for a target that this machine is", 60)
    facts = backend.toolchain(str(target.get("device")))
    return _package(offer, facts)


def _package(offer: Offer, facts: Any) -> No | None:
    """Return why code that was compiled for a processor or for CUDA cannot run here."""
    for name in ("torch", "torch_git", "cuda"):
        built, here = offer.toolchain.get(name), facts.get(name)
        if built is not None and built != here:
            what = "torch" if name == "torch_git" else name
            why = f"it was built with {what} {built}, and this is {what} {here}"
            return No(why, f"run it with {what} {built}, or export it again with {what} {here}", 30)
    lacks = sorted(set(offer.target["instruction_sets"]) - set(host_flags()))
    if lacks:
        level = next(iter(levels_of(host_flags())), "x86-64")
        why = f"this machine's processor lacks {', '.join(lacks)}"
        return No(why, f"export it for less: trtcache export FILE.pt2 --target {level} -o OUT.pt2", 40)
    if offer.target["device"] == "cuda":
        return _capability(offer)
    return None


def _capability(offer: Offer) -> No | None:
    gpu, wanted = gpu_here(), str(offer.target.get("capability"))
    if gpu is None or gpu.capability != wanted:
        here = f"{gpu.product} ({capability_words(gpu.capability)})" if gpu else "none"
        why = f"it is for {capability_words(wanted)}, and the GPU here is {here}"
        return No(why, f"run it on a GPU of {capability_words(wanted)}, or export it on this one", 50)
    return None


def _plan(offer: Offer) -> No | None:
    """Return why a plan of either TensorRT cannot run here."""
    flavour = _FLAVOURS[offer.backend]
    if not flavour.installed:
        return No(flavour.missing, f"pip install 'trtcache[{flavour.extra}]'", 20)
    machine = PlanMachine.here(flavour)
    assert offer.member is not None  # noqa: S101  # it has engines
    try:
        facts = Facts.read(offer.member(MEMBER))
        require_fit(facts, machine)
    except IncompatibleEngineError as error:
        version = f"{flavour.title} {offer.toolchain.get(flavour.name)}"
        return No(error.why, f"install {version}, or export it again with {machine.version}", 30)
    if why := elsewhere(facts, machine):
        return No(why, _remedy(why, offer), 10 if "driver" in why else 50)
    return None


def _remedy(why: str, offer: Offer) -> str:
    if "driver" in why:
        return "install a later NVIDIA driver"
    words = capability_words(str(offer.target.get("capability") or ""))
    gpu = gpu_here()
    again = f", or export it for this one: --target {capability_words(gpu.capability)}" if gpu else ""
    return f"run it on a machine with a GPU of {words}{again}"

"""Whether a plan of an exported program can run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.backends.fitness import Misfit
from trtcache.backends.gpu import gpu_here
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS
from trtcache.backends.tensorrt.preflight import MEMBER, Machine, PlanFacts, require_fit, why_not_here
from trtcache.errors import IncompatibleEngineError
from trtcache.target import capability_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.fitness import StoredTarget
    from trtcache.backends.tensorrt.flavour import Flavour


def why_misfit(flavour: Flavour, stored: StoredTarget) -> Misfit | None:
    """Return why a plan cannot run here, or None if it can."""
    if not flavour.installed:
        return Misfit(flavour.missing, f"pip install 'trtcache[{flavour.extra}]'", 20)
    machine = Machine.here(flavour)
    assert stored.member is not None  # noqa: S101  # it has engines
    try:
        facts = PlanFacts.read(stored.member(MEMBER))
        require_fit(facts, machine)
    except IncompatibleEngineError as error:
        version = f"{flavour.title} {stored.toolchain.get(flavour.name)}"
        return Misfit(error.why, f"install {version}, or export it again with {machine.version}", 30)
    why = why_not_here(facts, machine)
    if not why:
        return None
    if "driver" in why:
        return Misfit(why, "install a later NVIDIA driver", 10)
    words, gpu = capability_words(str(stored.target.get("capability") or "")), gpu_here()
    again = f", or export it for this one: --target {capability_words(gpu.capability)}" if gpu else ""
    return Misfit(why, f"run it on a machine with a GPU of {words}{again}", 50)


def rank(target: Mapping[str, Any]) -> int:
    """Return how well a plan fits: one for this product best, then the fewer capabilities the better."""
    capability = str(target.get("capability") or "")
    width = 100 if capability == AMPERE_PLUS else len(capability.split(","))
    return (500 if target.get("gpu") else 0) - width

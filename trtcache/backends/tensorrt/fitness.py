"""Whether a plan of an exported program can run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.backends.fitness import Distance, Misfit
from trtcache.backends.tensorrt.flavour import AMPERE_PLUS
from trtcache.backends.tensorrt.preflight import MEMBER, Machine, PlanFacts, find_obstacle, require_loadable_version
from trtcache.errors import IncompatibleEngineError
from trtcache.target import capability_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.fitness import StoredTarget
    from trtcache.backends.tensorrt.flavour import Flavour


def why_misfit(flavour: Flavour, stored: StoredTarget) -> Misfit | None:
    """Return why a plan cannot run here, or None if it can."""
    if not flavour.installed:
        return Misfit(flavour.missing, f"pip install 'trtcache[{flavour.extra}]'", Distance.PACKAGE)
    machine = Machine.here(flavour)
    assert stored.member is not None  # noqa: S101  # it has engines
    try:
        facts = PlanFacts.read(stored.member(MEMBER))
        require_loadable_version(facts, machine)
    except IncompatibleEngineError as error:
        version = f"{flavour.title} {stored.toolchain.get(flavour.name)}"
        remedy = f"install {version}, or export it again with {machine.version}"
        return Misfit(error.why, remedy, Distance.VERSION)
    obstacle = find_obstacle(facts, machine)
    if obstacle is None:
        return None
    if obstacle.what == "driver":
        return Misfit(obstacle.why, "install a later NVIDIA driver", Distance.DRIVER)
    if obstacle.what == "platform":
        remedy = f"run it on {facts.target['platform']}, or export it again on {machine.platform}"
        return Misfit(obstacle.why, remedy, Distance.PLATFORM)
    again = ""
    if machine.gpu is not None:
        again = f", or export it for this one: --target {capability_words(machine.gpu.capability)}"
    capability = str(stored.target.get("capability") or "")
    gpu = f"a GPU of {capability_words(capability)}" if capability else "an NVIDIA GPU"
    return Misfit(obstacle.why, f"run it on a machine with {gpu}{again}", Distance.GPU)


def rank(target: Mapping[str, Any]) -> int:
    """Return how well a plan fits.

    Higher is better: first a plan built for one GPU product, then plans for fewer GPU generations.
    """
    capability = str(target.get("capability") or "")
    width = 100 if capability == AMPERE_PLUS else len(capability.split(","))
    return (500 if target.get("gpu") else 0) - width

"""Whether a stored engine can run in this process, and the remedy if it cannot. Imports no torch."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from trtcache.config.frozen import frozen_dataclass
from trtcache.target import capability_words, host_flags, levels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
    from trtcache.backends.gpu import gpu_here

    gpu, wanted = gpu_here(), capability_words(capability)
    if gpu is not None and gpu.capability == capability:
        return None
    here = f"{gpu.product} ({capability_words(gpu.capability)})" if gpu else "none"
    why = f"it is for {wanted}, and the GPU here is {here}"
    return Misfit(why, f"run it on a GPU of {wanted}, or export it on this one", Distance.GPU)

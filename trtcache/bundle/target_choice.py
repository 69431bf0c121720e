"""Choice of a program's target for this process, and the remedy if none fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.backends import registry
from trtcache.backends.fitness import Distance, Misfit, StoredTarget
from trtcache.errors import BackendUnavailableError, NoFittingEngineError
from trtcache.target import host_platform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trtcache.backends.fitness import Fitness


def choose(
    options: Sequence[StoredTarget], path: str, backend_of: Callable[[str], Fitness] = registry.load_backend
) -> StoredTarget:
    """Return the target that fits best: one for a GPU before one for a CPU, then by the backend's rank.

    Args:
        options: the targets.
        path: the file, for messages.
        backend_of: returns a backend by name.

    Raises:
        NoFittingEngineError: none fits; it has the reason for each, and the simplest remedy.
    """
    found = [(option, why_rejected(option, backend_of)) for option in options]
    fitting = [option for option, misfit in found if misfit is None]
    if fitting:
        return max(fitting, key=lambda option: (*rank(option, backend_of), -option.number))
    reasons = tuple(f"{option.label}: {misfit.why}" for option, misfit in found if misfit is not None)
    nearest = min(
        (misfit for _, misfit in found if misfit is not None), key=lambda misfit: misfit.distance, default=None
    )
    remedy = nearest.remedy if nearest else "export it again"
    raise NoFittingEngineError(path, "none of its engines can run here", reasons, remedy)


def rank(option: StoredTarget, backend_of: Callable[[str], Fitness] = registry.load_backend) -> tuple[bool, int]:
    """Return how well a target fits that can run here."""
    is_gpu = option.target["device"] == "cuda"
    return is_gpu, backend_of(option.backend).rank(option.target) if option.member else 0


def why_rejected(option: StoredTarget, backend_of: Callable[[str], Fitness] = registry.load_backend) -> Misfit | None:
    """Return why a target cannot run here, or None if it can."""
    platform = option.target.get("platform")
    if option.member is None:  # everything runs in torch
        return None
    if platform != host_platform():
        remedy = f"export it for this machine: trtcache export FILE.pt2 -o OUT.pt2, on {host_platform()}"
        return Misfit(f"it is for {platform}, and this is {host_platform()}", remedy, Distance.PLATFORM)
    try:
        return backend_of(option.backend).why_misfit(option)
    except BackendUnavailableError as error:
        remedy = f"make {option.backend} available here, or export it for this machine's target"
        return Misfit(error.why, remedy, Distance.BACKEND)

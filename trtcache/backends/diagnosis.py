"""What ``trtcache doctor`` and ``trtcache selftest`` learn from a backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trtcache.backends.protocol import Backend

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

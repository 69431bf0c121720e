"""A backend that builds in milliseconds, so that a thousand cells of ``trtcache warm`` are in a cache soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from trtcache.backends.host import torch_versions
from trtcache.backends.protocol import Artifact, Backend, Capabilities
from trtcache.errors import IncompatibleEngineError
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings


class Instant(Backend):
    """Writes a file. It is found and not run."""

    name: ClassVar[str] = "instant"
    version: ClassVar[int] = 1
    capabilities: ClassVar[Capabilities] = Capabilities(
        devices=frozenset({"cpu"}), keep=frozenset(), refit=False, without_torch=True
    )

    def unavailable(self, device: str) -> str | None:
        """Say that there is only the CPU."""
        return None if device == "cpu" else f"runs on the CPU, not on {device}"

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named level."""
        return resolve_target(requested, device=device.type)

    def toolchain(self, device: str) -> Mapping[str, object]:  # noqa: ARG002  # the protocol's signature
        """Return the version of torch."""
        return {"torch": torch_versions()["torch"]}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting changes what is built."""
        return {}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:  # noqa: ARG002  # as above
        """Write a file."""
        artifact = folder / "engine.txt"
        artifact.write_text("instant")
        return Artifact(artifact)

    def load(self, artifact: bytes | memoryview, **_: object) -> NoReturn:  # noqa: ARG002  # as above
        """Refuse it."""
        raise IncompatibleEngineError(self.name, "it cannot be run")

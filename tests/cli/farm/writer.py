"""A backend that builds in a few seconds that cost no CPU, so that jobs can be killed in the middle of one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, NoReturn

import torch

from trtcache.backends.protocol import Artifact, Backend, Capabilities
from trtcache.errors import IncompatibleEngineError
from trtcache.target import Target, resolve_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings

BUILD_S = 6.0


class Writer(Backend):
    """Writes a file. It is found and not run."""

    name: ClassVar[str] = "writer"
    version: ClassVar[int] = 1
    capabilities: ClassVar[Capabilities] = Capabilities(devices=frozenset({"cpu"}), keep=frozenset(), refit=False)

    def unavailable(self, device: str) -> str | None:
        """Say that there is only the CPU."""
        return None if device == "cpu" else f"runs on the CPU, not on {device}"

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return this machine, or a named level."""
        return resolve_target(requested, device=device.type)

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the version of torch."""
        return {"torch": torch.__version__}

    def ambient(self) -> Mapping[str, object]:
        """Return nothing: no process-wide setting changes what is built."""
        return {}

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Write a file, slowly."""
        time.sleep(BUILD_S)
        artifact = folder / "engine.txt"
        artifact.write_text("writer")
        return Artifact(artifact)

    def load(self, artifact: bytes | memoryview, **_: object) -> NoReturn:
        """Refuse it."""
        raise IncompatibleEngineError(self.name, "it cannot be run")

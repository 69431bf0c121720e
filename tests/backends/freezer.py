"""A backend whose engines cannot take other weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from trtcache.config.backend_settings import BackendSettings
from trtcache.errors import FrozenWeightsError
from trtcache.testing.interpreter import Interpreter

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.backends.protocol import Artifact, Capabilities
    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot


@dataclass(frozen=True, slots=True)
class FreezerSettings(BackendSettings):
    """Whether an engine takes other weights; None if that is for the backend to decide."""

    section: ClassVar[str] = "freezer"

    refit: bool | None = None


class Freezer(Interpreter):
    """A backend whose engines cannot be refitted; building a refittable one raises."""

    name: ClassVar[str] = "freezer"
    capabilities: ClassVar[Capabilities] = replace(Interpreter.capabilities, can_freeze=True)
    settings_class = FreezerSettings

    def freeze(self, settings: Settings) -> Settings | None:
        """Return the settings for an engine that is not refittable, unless the caller has decided."""
        own = settings.section(FreezerSettings)
        return settings.with_section(FreezerSettings(refit=False)) if own.refit is None else None

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:
        """Return all slots for an engine that is not refittable."""
        return program.interface.slots if settings.section(FreezerSettings).refit is False else ()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Keep the graph, if its weights are in the key."""
        if settings.section(FreezerSettings).refit is not False:
            raise FrozenWeightsError(self.name, "bn.weight: the network has no refittable weight of this name")
        return super().build(program, settings, target, folder)

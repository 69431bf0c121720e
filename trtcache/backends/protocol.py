"""The contract of engine builders and of live engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from trtcache.backends.members import ENGINE
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch
    from torch import fx

    from trtcache.lowering import LoweredProgram
    from trtcache.settings import Settings
    from trtcache.target import Target
    from trtcache.weights.slots import Slot


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a backend.

    Attributes:
        devices: device types that its engines run on.
        keep: operators that lowering does not decompose because the backend has better code for them.
        refit: whether an engine takes other weights without a rebuild.
        unpack: operators that lowering decomposes further (the pass ``unpack``).
        bakes_weights: whether an artifact may contain values of weights (``Backend.frozen_slots``).
        builds_elsewhere: whether a process with the program but without values of weights can build.
        small_sizes: whether an engine accepts sizes of 0 and 1 where torch's range starts at 2.
    """

    devices: frozenset[str]
    keep: frozenset[str]
    refit: bool
    unpack: frozenset[str] = frozenset()
    bakes_weights: bool = False
    builds_elsewhere: bool = False
    small_sizes: bool = False


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of a build.

    Attributes:
        engine: the file of the plan or package.
        members: further members of the entry, by name.
    """

    engine: Path
    members: Mapping[str, bytes] = field(default_factory=dict)


class Engine(Protocol):
    """A loaded artifact with weights.

    Attributes:
        shares_weights: whether it reads the given weights' memory, so that in-place changes apply.
    """

    shares_weights: ClassVar[bool]

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Engine:
        """Return an engine of the same artifact with these weights; MUST NOT modify this one.

        Args:
            weights: all engine weights by name, with the program's dtype, shape, strides and device. They are shared,
                not copied, if the engine can.
        """
        ...

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the engine's outputs.

        Args:
            inputs: tensors checked against the interface; the engine MUST NOT keep references to them.
        """
        ...


@runtime_checkable
class Parallel(Protocol):
    """An engine that can accept concurrent calls."""

    def parallel(self, calls: int) -> Engine:
        """Return an engine of the same artifact and weights that accepts this many concurrent calls.

        It MUST return the same results, MUST NOT hold the GIL while it computes, and MUST NOT duplicate the weights.

        Raises:
            IncompatibleEngineError: this artifact does not support it; the message says why.
        """
        ...


class Backend(Protocol):
    """Builds and loads artifacts of one kind.

    A backend MUST be importable without its builder; ``unavailable`` reports that it is missing.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def unavailable(self, device: str) -> str | None:
        """Return why this backend cannot run on this device type here, and what to do, or None."""
        ...

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return the requested target. Raises SettingsError if this backend does not know it."""
        ...

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the versions that decide whether an artifact fits this process, as part of the key."""
        ...

    def ambient(self) -> Mapping[str, object]:
        """Return process-wide settings, outside ``Settings``, that affect builds, as part of the key."""
        ...

    def check(self, settings: Settings) -> None:
        """Raise SettingsError for an unsupported setting; by default TensorRT's settings are unsupported."""
        if given := settings.tensorrt.explicit:
            names = ", ".join(f"settings.tensorrt[{name!r}]" for name in given)
            raise SettingsError(names, f"backend {self.name!r} has no such settings")

    def why_not(self, node: fx.Node) -> str | None:  # noqa: ARG002  # a default
        """Return why an engine cannot contain a node of a lowered program, or None; by default it can contain all."""
        return None

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:  # noqa: ARG002  # a default
        """Return the slots whose values an artifact contains. Their fingerprints are part of the key."""
        return ()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build an artifact into ``folder``.

        Its behaviour MUST NOT depend on values of weights other than ``frozen_slots``: each load sets those.

        Raises:
            FrozenWeightsError: weights other than ``frozen_slots`` would be frozen into the artifact.
            BuildError: the builder failed.
        """
        ...

    def load(
        self,
        artifact: bytes | memoryview,
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> Engine:
        """Return a live engine of a verified artifact. MUST NOT return one with a constant or a weight unset.

        Raises:
            IncompatibleEngineError: the artifact cannot be loaded here.
        """
        ...

    def load_entry(
        self,
        read: Callable[[str], bytes | memoryview],
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> Engine:
        """Return a live engine of a verified entry; by default it loads the engine member and reads no other.

        Args:
            read: returns a member by name, including those of ``Artifact.members``.
            device: see ``load``.
            constants: see ``load``.
            weights: see ``load``.

        Raises:
            IncompatibleEngineError: the entry cannot be loaded here. It is quarantined and rebuilt.
        """
        return self.load(read(ENGINE), device=device, constants=constants, weights=weights)

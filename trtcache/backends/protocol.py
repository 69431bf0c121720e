"""What an engine builder must offer, and what a live engine is."""

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
    """What a backend can do.

    Attributes:
        devices: kinds of device that its engines run on.
        keep: operators that lowering leaves whole because the backend has better code for them.
        refit: whether an engine takes other weights without a rebuild.
        unpack: operators that lowering takes apart (``trtcache.lowering.rewrites.unpack``).
        bakes_weights: whether an artifact may have values of weights in it (``Backend.frozen``).
        builds_elsewhere: whether another process can build, which has the program and no values of weights.
        small_sizes: whether an engine takes sizes of 0 and 1 where torch's range begins at 2.
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
    """What a build made.

    Attributes:
        engine: the file of the plan or package.
        members: what else is to be stored with it, by name.
    """

    engine: Path
    members: Mapping[str, bytes] = field(default_factory=dict)


class Engine(Protocol):
    """A loaded artifact with weights in it.

    Attributes:
        shares_weights: whether it reads weights where they lie, so that what is written there is what it reads.
    """

    shares_weights: ClassVar[bool]

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Engine:
        """Return an engine of the same artifact with these weights; MUST leave this one as it is.

        Args:
            weights: all engine weights by name, in the dtype, shape, strides and device that the program says. They are
                shared, not copied, where the engine can.
        """
        ...

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the engine's outputs.

        Args:
            inputs: tensors that were checked against the interface; the engine MUST NOT keep them.
        """
        ...


@runtime_checkable
class Parallel(Protocol):
    """What an engine has beside the rest if calls can run side by side in it."""

    def parallel(self, calls: int) -> Engine:
        """Return an engine of the same artifact and weights that this many calls can be in at once.

        It MUST answer each call as this one does, MUST NOT hold the interpreter's lock while it computes, and MUST NOT
        have the weights in memory once more.

        Raises:
            IncompatibleEngineError: not this artifact; it says why.
        """
        ...


class Backend(Protocol):
    """Builds artifacts of one kind, and loads them.

    A backend MUST be importable without its builder being installed; ``unavailable`` tells.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def unavailable(self, device: str) -> str | None:
        """Return why this backend cannot run on this kind of device here, in a sentence that says what to do."""
        ...

    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return the target that a caller means. Raises SettingsError for one that this backend does not know."""
        ...

    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the versions that decide whether an artifact fits this process, as a part of the key."""
        ...

    def ambient(self) -> Mapping[str, object]:
        """Return process-wide settings, outside ``Settings``, that change what is built, as a part of the key."""
        ...

    def check(self, settings: Settings) -> None:
        """Raise SettingsError for a setting that this backend lacks; by default it has all but TensorRT's."""
        if given := settings.tensorrt.explicit:
            names = ", ".join(f"settings.tensorrt[{name!r}]" for name in given)
            raise SettingsError(names, f"backend {self.name!r} has no such settings")

    def why_not(self, node: fx.Node) -> str | None:  # noqa: ARG002  # a default
        """Return why no engine can have a node of a lowered program, or None; by default it can have all."""
        return None

    def frozen(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:  # noqa: ARG002  # a default
        """Return the slots whose values an artifact has in it. Their fingerprints are then part of the key."""
        return ()

    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build an artifact into ``folder``.

        What the artifact does MUST NOT depend on the values of weights that are not ``frozen``: a load sets them anew.

        Raises:
            FrozenWeightsError: weights that are not ``frozen`` would be in the artifact for good.
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
        """Return a live engine of a verified entry; by default ``load`` of its engine, and no other member is read.

        Args:
            read: returns a member by name, those of ``Artifact.members`` too.
            device: as of ``load``.
            constants: as of ``load``.
            weights: as of ``load``.

        Raises:
            IncompatibleEngineError: the entry cannot be loaded here. It is put aside, and built again.
        """
        return self.load(read(ENGINE), device=device, constants=constants, weights=weights)

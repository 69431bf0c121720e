"""The contract of engine builders, of live engines and of stores for tuning caches, and the members of an artifact.

Besides the engine, an entry has members for running and refitting it without its model. Tuning caches (timing caches
and runtime caches) save time and do not affect what is built, so they are in no key and may be lost at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import Json, canonical, json_bytes
from trtcache.errors import BackendUnavailableError, BuildError
from trtcache.settings import AUTO, PACKED, REFITTABLE, Settings
from trtcache.weights.slots import Slot, geometry, weight_map

if TYPE_CHECKING:
    import torch
    from torch import fx

    from trtcache.backends.fitness import Check, Misfit, SelfTest, StoredTarget
    from trtcache.backends.onnx_operators import OnnxModel, Range
    from trtcache.config.backend_settings import BackendSettings
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.target import Target

ENGINE, CONSTANTS, WEIGHT_MAP, INTERFACE, GRAPH = (
    "engine",
    "constants.safetensors",
    "weight_map.json",
    "interface.json",
    "graph.json",
)

INTERFACE_FORMAT = 2
"""Version of the interface member. Version 1 had no weights."""


def make_members(program: LoweredProgram, records: list[Json], engine: Path) -> dict[str, bytes | Path]:
    """Return the members of a program's entry: engine, constants, weight map, interface and lowered graph."""
    from safetensors.torch import save  # only a build needs these two

    from trtcache.keys.graph_digest import graph_document

    # safetensors rejects tensors that share memory, such as a buffer and a slice of it.
    constants = {name: tensor.detach().cpu().clone() for name, tensor in program.constants.items()}
    return {
        ENGINE: engine,
        CONSTANTS: save(constants),
        WEIGHT_MAP: json_bytes(weight_map(program.interface.weights)),
        INTERFACE: json_bytes(interface_document(program.interface, program.constants)),
        GRAPH: json_bytes(graph_document(program, records)),
    }


def interface_document(interface: Interface, constants: Mapping[str, torch.Tensor]) -> dict[str, Json]:
    """Return the interface as stored in an artifact; ``constants`` are its constants' tensors, in order."""
    devices = {name: tensor.device.type for name, tensor in constants.items()}
    document: dict[str, Json] = {
        "format": INTERFACE_FORMAT,
        "inputs": [one.document() for one in interface.inputs],
        "values": [[one.leaf, canonical(one.value)] for one in interface.values],
        "results": [[one.kind, one.target, canonical(one.value), canonical(one.layout)] for one in interface.results],
        "slots": [slot.document() for slot in interface.slots],
        "weights": [geometry(weight) for weight in interface.weights],
        "constants": {name: [digest, devices[name]] for name, digest in zip(devices, interface.constants, strict=True)},
        "sizes": [list(bounds) for bounds in interface.ranges],
        "outputs": [one.document() for one in interface.outputs],
    }
    if interface.views:
        document["views"] = list(interface.views)
    if interface.guards:
        document["guards"] = list(interface.guards)
    if interface.small_sizes is not None:
        document["small_sizes"] = interface.small_sizes.document()
    return document


@frozen_dataclass
class Capabilities:
    """The abilities of a backend.

    Attributes:
        devices: device types that its engines run on.
        without_torch: whether its module and ``unavailable``, ``target``, ``versions``, ``ambient`` and ``check`` for
            the CPU work without torch, and return what they return right after ``import torch``. ``target`` then gets
            a stand-in for the device that only has ``type`` and ``index``. A plan of ``trtcache warm`` is then ready
            before torch would be imported.
        accepts: the forms of program that it builds: ``torch``, and ``onnx`` for ONNX files (``build_onnx``).
        keep: operators that lowering does not decompose because the backend has better code for them.
        refit: whether an engine takes other weights without a rebuild.
        unpack: operators that lowering decomposes further (the pass ``unpack``).
        can_freeze: whether a build of an engine that takes any weights can fail where one with the values of some
            weights in it succeeds (``Backend.freeze``).
        builds_elsewhere: whether a process with the program but without values of weights can build.
        small_sizes: whether an engine accepts sizes of 0 and 1 where torch's range starts at 2.
        torch_threads: whether its engines run with torch's intra-op threads, so that ``trtcache.threads`` applies.
        same_versions: the names in ``Backend.versions`` that MUST be equal where an exported artifact runs; None for
            all of them.
        weights: the values of ``settings.weights`` that it takes, besides ``auto``.
    """

    devices: frozenset[str]
    keep: frozenset[str]
    refit: bool
    unpack: frozenset[str] = frozenset()
    can_freeze: bool = False
    builds_elsewhere: bool = False
    small_sizes: bool = False
    torch_threads: bool = False
    without_torch: bool = False
    same_versions: tuple[str, ...] | None = None
    accepts: frozenset[str] = frozenset({"torch"})
    weights: frozenset[str] = frozenset({"refittable"})


@frozen_dataclass
class Artifact:
    """The result of a build.

    Attributes:
        engine: the file of the plan or package.
        members: further members of the entry, by name.
        steps: seconds of the steps of the build, by name; for the report only.
    """

    engine: Path
    members: Mapping[str, bytes] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """A loaded artifact with weights.

    An engine that was built for some sizes only also has ``check_sizes(inputs)``, which raises InputError for others.

    Attributes:
        shares_weights: whether it reads the given weights' memory, so that in-place changes apply; by default it does
            not.
    """

    @property
    def shares_weights(self) -> bool:
        """Whether it reads the given weights' memory."""
        return False

    def refit(self, weights: Mapping[str, torch.Tensor]) -> Engine:
        """Return an engine of the same artifact with these weights; MUST NOT modify this one.

        It is required unless ``Capabilities.refit`` is False.

        Args:
            weights: all engine weights by name, with the program's dtype, shape, strides and device. They are shared,
                not copied, if the engine can.
        """
        raise NotImplementedError

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the engine's outputs.

        Args:
            inputs: tensors checked against the interface; the engine MUST NOT keep references to them.
        """
        raise NotImplementedError


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


class Backend(ABC):
    """Builds and loads artifacts of one kind.

    A backend MUST be importable without its builder; ``unavailable`` reports that it is missing.

    Attributes:
        name: the name of its entry point; it is in each key.
        version: the version of its own code, in each key. Increment it if a rebuilt artifact would behave differently
            from a stored one.
        capabilities: its abilities.
        settings_class: the class of its own settings, whose ``section`` is the backend's name; None if it has none.
            ``settings.section(settings_class)`` returns them.
    """

    name: ClassVar[str]
    version: ClassVar[int | str]
    capabilities: ClassVar[Capabilities]
    settings_class: ClassVar[type[BackendSettings] | None] = None

    @abstractmethod
    def unavailable(self, device: str) -> str | None:
        """Return why this backend cannot run on this device type here, and what to do, or None."""

    @abstractmethod
    def target(self, requested: str | None, device: torch.device) -> Target:
        """Return the requested target. Raises SettingsError if this backend does not know it."""

    @abstractmethod
    def toolchain(self, device: str) -> Mapping[str, object]:
        """Return the versions of other software that decide whether an artifact fits this process."""

    def versions(self, device: str) -> dict[str, object]:
        """Return the toolchain, the version of this backend and the defaults of its settings, as part of the key."""
        defaults = self.settings_class.defaults() if self.settings_class else {}
        return {**self.toolchain(device), "builder": self.version, **({"settings": defaults} if defaults else {})}

    @abstractmethod
    def ambient(self) -> Mapping[str, object]:
        """Return process-wide settings, outside ``Settings``, that affect builds, as part of the key."""

    def check(self, settings: Settings) -> None:  # noqa: B027  # a default
        """Raise SettingsError for a combination of settings that is unsupported; by default all are supported."""

    def why_not(self, node: fx.Node) -> str | None:  # noqa: ARG002  # a default
        """Return why an engine cannot contain a node of a lowered program, or None; by default it can contain all."""
        return None

    def frozen_slots(self, program: LoweredProgram, settings: Settings) -> tuple[Slot, ...]:  # noqa: ARG002  # a default
        """Return the slots whose values an artifact contains. Their fingerprints are part of the key."""
        return ()

    def choose_weights(self, weights: str, device_type: str) -> str:
        """Return how engines take their weights: ``weights``, or for ``auto`` packed on a CPU and else refittable.

        Packed engines are as fast as frozen ones (``docs/performance.md``), and are refitted.
        """
        if weights != AUTO:
            return weights
        return PACKED if device_type == "cpu" and PACKED in self.capabilities.weights else REFITTABLE

    def bakes_weights(self, settings: Settings) -> bool:  # noqa: ARG002  # a default
        """Return whether an artifact with these settings may contain values of weights (``frozen_slots``)."""
        return self.capabilities.can_freeze

    def freeze(self, settings: Settings) -> Settings | None:  # noqa: ARG002  # a default
        """Return the settings for an engine with embedded weights; None if ``settings`` exclude it.

        Called if ``capabilities.can_freeze`` and a build of an engine that takes any weights failed.
        """
        return None

    def takes_similar(self, settings: Settings) -> bool:  # noqa: ARG002  # a default
        """Return whether a stored engine for another GPU of the same compute capability may be used."""
        return False

    def refused_sizes(
        self,
        read: Callable[[str], bytes | memoryview],  # noqa: ARG002  # a default
        sizes: Mapping[int, int],  # noqa: ARG002  # a default
    ) -> frozenset[int]:
        """Return the symbolic sizes on whose values an engine relies, if it cannot run with the given ones.

        For a builder that can specialise on the sizes of the example, although they are dynamic. The program then gets
        another engine, with another key. By default engines run with all sizes that the program accepts.

        Args:
            read: returns a member of the engine's entry by name.
            sizes: the example's sizes, by the numbers of their symbols.

        Returns:
            The numbers of these symbols; empty if the engine runs with the given sizes.
        """
        return frozenset()

    @abstractmethod
    def build(self, program: LoweredProgram, settings: Settings, target: Target, folder: Path) -> Artifact:
        """Build an artifact into ``folder``.

        Its behaviour MUST NOT depend on values of weights other than ``frozen_slots``: each load sets those.

        Raises:
            FrozenWeightsError: weights other than ``frozen_slots`` would be frozen into the artifact.
            BuildError: the builder failed.
        """

    def why_misfit(self, stored: StoredTarget) -> Misfit | None:
        """Return why an engine of an exported program cannot run here, with the remedy, or None if it can.

        By default versions (``capabilities.same_versions``), instruction sets and the GPU's capability are compared.
        """
        from trtcache.backends.fitness import Distance, Misfit, compare_with_here  # for exported programs only
        from trtcache.backends.registry import why_unavailable

        device = str(stored.target.get("device"))
        if why := why_unavailable(self, device):
            remedy = f"make {self.name} available here, or export it for this machine's target"
            return Misfit(why, remedy, Distance.BACKEND)
        versions: Any = canonical(self.versions(device))
        return compare_with_here(stored, versions, self.capabilities.same_versions)

    def rank(self, target: Mapping[str, Any]) -> int:
        """Return how well an engine for a target, as in the key, fits; of those that can run here the highest is used.

        By default the number of instruction sets, and for a GPU less than for a plan of TensorRT for one product.
        """
        return len(target["instruction_sets"]) if target["device"] == "cpu" else -1

    def diagnose(self, *, quick: bool) -> Iterator[Check]:  # noqa: ARG002  # a default
        """Yield the checks of ``trtcache doctor``; by default whether this backend can run here.

        They run in a child process, which may crash.

        Args:
            quick: skip what takes more than a second.
        """
        from trtcache.backends.fitness import check_availability  # a hit does not need it

        yield check_availability(self)

    def selftest(self) -> SelfTest:
        """Return how ``trtcache selftest`` tests this backend; by default with a model on the first of its devices.

        Raises:
            BackendUnavailableError: its software is not installed.
        """
        from trtcache.backends.fitness import SelfTest  # a hit does not need it

        devices = self.capabilities.devices
        device = "cpu" if "cpu" in devices else min(devices)
        if why := self.unavailable(device):
            raise BackendUnavailableError(self.name, why)
        return SelfTest(device)

    def takes_weights(self, settings: Settings) -> bool:  # noqa: ARG002  # a default
        """Return whether an engine of an ONNX file takes weights; otherwise they are in the artifact and in the key."""
        return self.capabilities.refit

    def build_onnx(
        self,
        model: OnnxModel,  # noqa: ARG002  # a default
        interface: Interface,  # noqa: ARG002  # a default
        ranges: Sequence[Range],  # noqa: ARG002  # a default
        settings: Settings,  # noqa: ARG002  # a default
        target: Target,  # noqa: ARG002  # a default
        folder: Path,  # noqa: ARG002  # a default
    ) -> Artifact:
        """Build an artifact of an ONNX file into ``folder``, if ``capabilities.accepts`` has ``onnx``.

        Args:
            model: the model; its weights are initializers without data, by the names in ``interface.weights``.
            interface: its inputs, outputs and weights.
            ranges: the inputs with dynamic sizes.
            settings: the settings of the build.
            target: the target of the engine.
            folder: an empty folder.

        Raises:
            BuildError: the builder failed.
        """
        raise BuildError(self.name, "it builds torch programs only")

    def refit_artifact(
        self,
        read: Callable[[str], bytes | memoryview],  # noqa: ARG002  # a default
        weights: Callable[[], Mapping[str, torch.Tensor]],  # noqa: ARG002  # a default
    ) -> memoryview | None:
        """Return a stored artifact with other weights; by default None: an artifact contains no weights.

        Args:
            read: returns a member of its entry by name.
            weights: returns all engine weights by name; raises RefitError if they do not fit.

        Raises:
            NoDeviceError: the device that this needs is not available.
            IncompatibleEngineError: the entry cannot be loaded here.
            RefitError: the builder rejects a weight.
        """
        return None

    @abstractmethod
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

    def load_entry(
        self,
        read: Callable[[str], bytes | memoryview],
        *,
        device: torch.device,
        constants: Mapping[str, torch.Tensor],
        weights: Mapping[str, torch.Tensor],
    ) -> Engine:
        """Return a live engine of a verified entry. ``read`` returns a member by name; this reads the engine only.

        Raises:
            IncompatibleEngineError: the entry cannot be loaded here. It is replaced, if a new one can be loaded.
        """
        return self.load(read(ENGINE), device=device, constants=constants, weights=weights)


class TuningStore(Protocol):
    """Stores tuning caches by kind and by key parts. A ``Cache`` is one."""

    def recall(self, kind: str, parts: Mapping[str, object]) -> bytes | None:
        """Return the stored cache, or None. MUST NOT raise because of its content."""
        ...

    def merge(
        self,
        kind: str,
        parts: Mapping[str, object],
        combine: Callable[[bytes | None], bytes | None],
        *,
        name: str,
        saves_s: float,
    ) -> None:
        """Replace the stored cache by the result of ``combine``, unless that is None.

        ``saves_s`` estimates the time to measure it again; eviction uses it. Implementations MUST exclude other
        processes meanwhile, and MUST NOT raise because of the store.
        """
        ...


_TUNING_STORE: ContextVar[TuningStore | None] = ContextVar("trtcache.backends.protocol", default=None)


@contextmanager
def use_tuning_store(where: TuningStore) -> Iterator[None]:
    """Use a store for tuning caches in this thread for the duration of the block."""
    token = _TUNING_STORE.set(where)
    try:
        yield
    finally:
        _TUNING_STORE.reset(token)


def current_tuning_store() -> TuningStore | None:
    """Return the current store for tuning caches, or None."""
    return _TUNING_STORE.get()

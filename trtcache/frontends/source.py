"""The protocol of sources, and compile options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from trtcache.backends import registry
from trtcache.config import paused_collector
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError
from trtcache.settings import Settings

if TYPE_CHECKING:
    import inspect

    import torch
    from torch.utils import _pytree as pytree

    from trtcache.backends.protocol import Backend
    from trtcache.config.paths import StatFingerprint
    from trtcache.digests import CacheKey, Digest, Json
    from trtcache.frontends.request import Request
    from trtcache.keys.key import KeyAlias
    from trtcache.lowering import LoweredProgram
    from trtcache.lowering.interface import Interface
    from trtcache.runtime import Report
    from trtcache.store.contract import Entry
    from trtcache.target import Target

Specs = tuple["pytree.TreeSpec", "pytree.TreeSpec"]
"""The pytree specs of a call's arguments and of a program's output."""


@frozen_dataclass
class CompileOptions:
    """Backend, settings and target of a compilation.

    Attributes:
        backend: the name of a backend, or ``auto``.
        settings: the settings of the build.
        target: the name of a target; None for this machine.
        is_subgraph: whether the program is one of several graphs of a model, so that a module or operator that the
            settings name may be in another of them.
    """

    backend: str = "auto"
    settings: Settings = field(default_factory=Settings)
    target: str | None = None
    is_subgraph: bool = False

    @classmethod
    def of(cls, backend: str, settings: Settings | Mapping[str, object] | None, target: str | None) -> CompileOptions:
        """Create options from the arguments of ``trtcache.compile``.

        Raises:
            SettingsError: a setting is unknown.
        """
        return cls(backend, Settings.of(settings), target)


class Source(ABC):
    """A model in any form that can be compiled, as ``trtcache.frontends.resolve`` returns it.

    To add a kind of source, derive a class, set ``fingerprint_name`` and ``name``, implement ``device``,
    ``fingerprint``, ``weights`` and ``program``, and add it to ``resolve``. If torch cannot run it, set
    ``is_torch = False`` here and in a new subclass of ``Request``, override ``find_backend``, ``weight_file`` and
    ``request``, which returns an instance of that subclass, and let ``program`` raise ExportError. The pytree specs
    come from the alias if ``content_digest`` is set; otherwise ``specs`` or ``specs_of`` returns them. A build in the
    background uses ``path`` or ``program``, and ``compile`` reads ``automatic_sizes`` afterwards. Methods and
    properties are used in this order. On a hit:

    1. to find the alias (``try_fast_path``, ``AliasLookup.of``): ``require_weights``, ``fingerprint``,
       ``find_backend``, ``device``, ``option_parts`` with ``toolchain``, ``content_digest``;
    2. with the alias (``AliasLookup.find``): ``specs_of``, ``expect_content``;
    3. with the entry (``AliasLookup.load``): ``interface_on_device``, ``weights``, ``engine_weights``, ``input_names``,
       ``weight_file``, ``parameters``, ``check_content``, ``report_direct``.

    On a miss:

    1. ``export``; the rest on the source that it returned, which is tried as above first;
    2. to build: ``request``, which calls ``export``, ``lower`` and ``program`` of a torch program. The engine is loaded
       with the weights of the request; then ``release``;
    3. to store the alias: ``stat_fingerprint``, ``custom_operators``, ``check_alias``;
    4. on the source that was exported: ``store_manifest``, ``report_direct``.

    Attributes:
        fingerprint_name: the name of the fingerprint in an alias's key. Sources of one name and digest share an alias:
            a module that direct mode recognizes finds that of its exported program.
        is_torch: whether torch can run the program: then parts can stay in torch, and a compiled module be exported.
        name: the program's name in reports and listings.
        model: the module or exported program that eager torch can run; None for a ``.pt2`` or ``.onnx`` file.
        specs: the pytree specs of arguments and output; None if only an alias has them.
        forward: the signature of what a call of the model runs, if it is known (``signature_of_call``).
        export_s: seconds of an export before the source was created.
        file_s: seconds to open, map and hash its file.
        load_s: seconds that torch took to load the program from its file.
        path: the file that another process can open in place of this source; None if it has to be saved first.
        exported: the program that was lowered; None until then.
    """

    fingerprint_name: ClassVar[str]
    is_torch: ClassVar[bool] = True
    name: str
    model: torch.nn.Module | torch.export.ExportedProgram | None = None
    specs: Specs | None = None
    forward: inspect.Signature | None = None
    export_s: float = 0.0
    file_s: float = 0.0
    load_s: float = 0.0
    path: Path | None = None
    exported: torch.export.ExportedProgram | None = None

    def __enter__(self) -> Source:
        """Return the source; leaving the ``with`` block closes its file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing: only files are closed."""

    @property
    def label(self) -> str:
        """The name in log messages: a file's path."""
        return self.name

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that the program runs on.

        Raises:
            ValueError: its weights are on several devices.
        """

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``: the device type to choose a backend for."""
        return self.device.type

    @property
    def content_digest(self) -> Digest | None:
        """The digest of all its bytes, weights included; None for weights in memory, or if the fingerprint has them."""
        return None

    @property
    def parameters(self) -> frozenset[str]:
        """Names of weights that are parameters, beside those that ``weights`` returns as ``torch.nn.Parameter``."""
        return frozenset()

    # The key of an alias.

    @abstractmethod
    def fingerprint(self) -> Mapping[str, object] | None:
        """Return the fingerprint of the program, such as ``{self.fingerprint_name: digest}``.

        It MUST NOT export or lower anything.
        Programs with different cache keys MUST have different fingerprints, but for what the options and
        ``custom_operators`` tell apart. The values of weights are not part of it, except in an ONNX file's. A module's
        is that of the exported program which the manifest of direct mode names.

        Returns:
            Parts of an alias's key; None if the program is unknown until it is exported.

        Raises:
            ValueError: the program cannot have an alias; the message says why.
        """

    def find_backend(self, options: CompileOptions) -> Backend:
        """Return the backend that builds this program.

        Raises:
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the backend does not take the settings.
        """
        backend = registry.find(options.backend, self.device_type)
        registry.check_settings(backend, options.settings)
        return backend

    def option_parts(self, backend: Backend, settings: Settings, target: Target) -> dict[str, Any]:
        """Return the parts of a cache key that only the options and this machine determine."""
        return {
            "settings": settings.document(),
            "target": target.document(),
            "toolchain": self.toolchain(backend),
            "ambient": backend.ambient(),
        }

    def toolchain(self, backend: Backend) -> Mapping[str, Any]:
        """Return the versions that the build depends on."""
        return backend.versions(self.device_type)

    # Loading an engine that was found through an alias.

    def input_names(self, key: CacheKey) -> tuple[str, ...] | None:
        """Return the names of inputs in an engine's key, which need not be Python identifiers; None if it has none.

        Raises:
            ValueError: the key is not that of a program of this kind.
        """
        del key
        return None

    def specs_of(self, key: CacheKey) -> Specs | None:
        """Return the pytree specs of arguments and output; None if the alias has them.

        Raises:
            ValueError: the key is not that of a program of this kind.
        """
        del key
        return self.specs

    def interface_on_device(self, interface: Interface) -> Interface:
        """Return a stored interface with its inputs and outputs moved to the devices of this machine."""
        return interface

    def expect_content(self, expected: Digest | None, file_stat: StatFingerprint | None) -> None:
        """Prepare ``check_content``: the source had this digest when its file had this stat fingerprint."""

    @abstractmethod
    def weights(self, names: Collection[str]) -> Mapping[str, torch.Tensor]:
        """Return weights by the program's names for them.

        Raises:
            ValueError: a weight does not exist, or only torch can read it.
        """

    def engine_weights(
        self, interface: Interface, alias: KeyAlias, state: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        """Return the weights of an engine, by its names for them.

        Raises:
            RefitError: they do not fit.
        """
        from trtcache.weights.slots import fit

        return fit(interface.weights, state, known=alias.known, device=alias.device)

    def weight_file(self, key: CacheKey, interface: Interface, entry: Entry) -> Any:
        """Return the reader of weights for refits from files of this kind; None if any file of weights can be read."""
        del key, interface, entry

    def stat_fingerprint(self) -> StatFingerprint | None:
        """Return the stat fingerprint of its file, if it reliably identifies the content with ``content_digest``."""
        return None

    def check_content(self, expected: Digest | None) -> None:
        """Check, once everything was read, that the data is intact.

        Args:
            expected: the digest of all bytes when the alias was stored.

        Raises:
            ExportError: a weight is damaged, or the file was written to meanwhile.
        """

    def automatic_sizes(self, in_spec: pytree.TreeSpec) -> Mapping[tuple[int, int | None], str]:
        """Return the sizes that ``Dim.AUTO`` left to torch, with the reason for fixing one, as far as it is known.

        Args:
            in_spec: the pytree spec of the call's arguments.

        Returns:
            (Leaf of the arguments, dimension or None for an int) -> reason, or an empty string.
        """
        del in_spec
        return {}

    # The slow path.

    def require_weights(self) -> None:
        """Check that its weights have values, before the fingerprint is computed; by default nothing is checked.

        A module is checked once it is exported.

        Raises:
            ExportError: one is fake, as after a construction under ``FakeTensorMode``.
        """

    def export(self, options: CompileOptions) -> Source:
        """Return a source whose program is known.

        A module is exported, TorchScript is converted, and any other source returns itself.

        Raises:
            ExportError: the model cannot be exported.
            BackendUnavailableError: the backend is unknown or cannot run here.
            SettingsError: the backend does not take the settings.
        """
        del options
        return self

    def store_manifest(self, program: Source, *, has_alias: bool) -> None:
        """Store a manifest, through which the next process finds the exported program.

        Nothing is stored if direct mode is off, or for another source than a module.

        Args:
            program: the source that ``export`` returned.
            has_alias: whether its key alias is stored; a manifest without one would lead nowhere.
        """

    def report_direct(self, report: Report, *, is_hit: bool) -> None:
        """Report the outcome of a module's direct mode; ``is_hit`` is whether its alias led to its engine."""

    def request(self, options: CompileOptions) -> Request:
        """Lower the program, and return the request for its engine with the key, or for its partitions.

        Raises:
            ExportError: an operator cannot be decomposed, or is not supported by any engine.
            PassError: a lowering pass broke its contract.
            BackendUnavailableError: the backend cannot run here.
            SettingsError: the target is unknown, or the program has no module that the settings name.
        """
        from trtcache.frontends.request import partition_and_request  # a hit lowers nothing

        source = self.export(options)  # itself, in ``compile_source``, which has exported it before
        with paused_collector():
            program = source.lower(options)
            backend = source.find_backend(options)
            return partition_and_request(program, backend, options.settings, options.target)

    def release(self) -> None:
        """Free the memory that only lowering and the build needed, and check that a file was not written to.

        Raises:
            ExportError: a file that was read during the build was written to meanwhile.
        """

    def lower(self, options: CompileOptions, *, trace: bool = False) -> LoweredProgram:
        """Return the lowered program; with ``trace``, ``.runs`` has the changes of each pass.

        Raises:
            ExportError: an operator cannot be decomposed, or sources of this kind are not lowered.
            PassError: a lowering pass broke its contract.
        """
        from trtcache.frontends.request import lower_program  # a hit lowers nothing

        source = self.export(options)
        source.exported = source.program()
        return lower_program(source.exported, source, options, export_s=source.export_s + source.load_s, trace=trace)

    @abstractmethod
    def program(self) -> torch.export.ExportedProgram:
        """Return the exported program.

        Raises:
            ExportError: the model cannot be exported, or the source is not a torch program.
        """

    def custom_operators(self, settings: Settings) -> Mapping[str, Json]:
        """Return what identifies the custom operators of the program that was lowered (``identify_operators``)."""
        from trtcache.lowering.operators import called_operators, identify_operators  # a hit lowers nothing

        return identify_operators(called_operators(self._lowered), settings.operator_versions) if self.is_torch else {}

    def check_alias(self, alias: KeyAlias, request: Request) -> None:
        """Check that the alias of a lowered program would lead to it.

        Raises:
            ValueError: it would not; the message says why.
        """
        if not self.is_torch:
            return
        from trtcache.lowering.interface import Content
        from trtcache.lowering.operators import called_operators, is_foreign, operator_names

        if request.program.device != self.device:
            raise ValueError(f"it runs on {request.program.device}, and its weights are on {self.device}")
        # An operator that code of this process decomposes leaves no trace in the lowered graph.
        known = {*request.settings.operator_versions, *operator_names(alias.operators)}
        operators = called_operators(self._lowered)
        if foreign := sorted({str(target._schema.name) for target in operators if is_foreign(target, known)}):
            raise ValueError(f"it does not cover what its operators {', '.join(foreign)} compute")
        if alias.content_digest is None and "frozen" in alias.key.parts:
            raise ValueError("an engine has embedded weights, whose values an alias does not compare")
        # The weight has to be the one that was lowered: the same object, or in a file one of the same bytes.
        for name, tensor in self.weights([name for names in alias.names for name in names]).items():
            lowered = request.program.state[name]
            if tensor is not lowered and (self.content_digest is None or Content.of(tensor) != Content.of(lowered)):
                raise ValueError(f"weight {name} is read with other values than torch reads")

    @property
    def _lowered(self) -> torch.export.ExportedProgram:
        assert self.exported is not None  # noqa: S101  # an alias is stored after its program was lowered
        return self.exported


def refuse_examples(
    name: str, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, dynamic_shapes: object
) -> None:
    """Refuse example inputs for an exported program, which has its own.

    Raises:
        SettingsError: there are some; the message names them.
    """
    given = {"args": args, "kwargs": kwargs, "dynamic_shapes": dynamic_shapes}
    if names := [argument for argument, value in given.items() if not _is_empty(value)]:
        why = f"{name} is an exported program, with example inputs and dynamic shapes of its own"
        raise SettingsError(", ".join(names), f"{why}; leave this out, or give the torch.nn.Module")


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, (tuple, list, dict)) and not value)

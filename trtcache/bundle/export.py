"""Export of modules and programs to files: one interface, one set of weights, and engines for each target."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.backends.protocol import ENGINE, GRAPH
from trtcache.bundle.engines import check_placement
from trtcache.bundle.save import save
from trtcache.cache import Cache
from trtcache.compiler.entries import get_or_build_entries, get_or_build_entry, new_report, provenance_of
from trtcache.compiler.stored_program import CallStructure, rebuild_program
from trtcache.config.environment import Config
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.paths import refuse_special_file
from trtcache.config.signing_keys import SecretKey
from trtcache.digests import CacheKey, canonical
from trtcache.errors import CanonicalizationError, ProgramFileError, SettingsError
from trtcache.frontends.exported import ExportedSource, signature_of
from trtcache.frontends.request import TorchRequest, make_request
from trtcache.frontends.source import CompileOptions
from trtcache.keys.key import PROGRAM_PARTS
from trtcache.lowering.interface import Result
from trtcache.runtime import CompiledModule
from trtcache.runtime.executable import Executable, Provenance, check_frozen, load_members, parameters_of, slot_values
from trtcache.runtime.module_call import CallSignature

if TYPE_CHECKING:
    import torch

    from trtcache.lowering import LoweredProgram
    from trtcache.partition.division import PartitionedProgram
    from trtcache.settings import Settings
    from trtcache.store.contract import Entry


@frozen_dataclass
class ProgramContents:
    """The contents of a program file.

    Attributes:
        name: the program's name.
        executable: its interface, constants, and the model's names of weights.
        call: the structure of arguments and outputs.
        division: its partitions, the same for all targets.
        weights: the value of each slot, by number.
        parameters: the names of parameters.
        origins: the engines of each target, in the order of the file.
    """

    name: str
    executable: Executable
    call: CallSignature
    division: PartitionedProgram
    weights: Mapping[int, torch.Tensor]
    parameters: frozenset[str]
    origins: tuple[Provenance, ...]

    @property
    def backend(self) -> str:
        """The backend of the engines."""
        return self.origins[0].backend


def contents_of_module(module: CompiledModule, path: str) -> ProgramContents:
    """Return the contents of a compiled module, with its current weights.

    Raises:
        ProgramFileError: it does not come from ``compile``, or a part of it runs in torch because another process was
            building its engine.
        NotReadyError: its engine is being built in the background.
        RefitError: weights have changed since an engine was built with their values in it.
    """
    origin = module.origin if isinstance(module, CompiledModule) else None
    if origin is None:
        what = f"a {type(module).__name__} has no stored engines of a program"
        remedy = "give a model compiled by trtcache.compile (for an ONNX file: trtcache build model.onnx -o model.plan)"
        raise ProgramFileError(path, f"{what}; {remedy}")
    if missing := set(origin.division.engines or ({0} if origin.division.is_one_engine else ())) - set(origin.entries):
        why = f"parts {sorted(missing)} of it run in torch in this process, while another process builds their engines"
        raise ProgramFileError(path, f"{why}; compile it again when they are built")
    executable, call = module.stored_form()
    if executable.live:
        why = "a part of it was compiled by itself, and the file would not have that engine"
        raise ProgramFileError(path, f"{why}; compile the whole model, or export the part")
    values = slot_values(executable.interface, module.current_weights())
    check_frozen(origin, executable.interface, values)
    return ProgramContents(module.report.name, executable, call, origin.division, values, origin.parameters, (origin,))


@frozen_dataclass
class ExportReport:
    """The result of an export. Printing it gives two lines.

    Attributes:
        name: the program's name.
        backend: the backend of the engines.
        targets: the targets of the engines.
        engines: the number of engines for each target.
        files: the program file and its sidecar files.
        size_bytes: the total size of all files.
        signer: the name of the key that signed it; empty if unsigned.
        export_s: seconds of the whole export.
    """

    name: str
    backend: str
    targets: tuple[str, ...]
    engines: int
    files: tuple[Path, ...]
    size_bytes: int
    signer: str
    export_s: float

    def __str__(self) -> str:
        signature = f"signed by {self.signer}" if self.signer else "not signed: load it with trust='local-file'"
        files = ", ".join(map(str, self.files))
        engines = "1 engine" if self.engines == 1 else f"{self.engines} engines"
        return f"{self.name}: {engines} for {'; '.join(self.targets)}\n  {files} ({signature})"


def export(
    compiled: CompiledModule,
    path: str | os.PathLike[str],
    *,
    engines: str = "embed",
    target: str | Sequence[str] | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
) -> ExportReport:
    """Write a compiled module to a file with its engines, weights and call signature.

    After ``import trtcache``, ``torch.export.load`` opens it as a program with an operator for each engine, and
    ``trtcache.load`` returns it ready to run. The file is signed if a signing key is set (``TRTCACHE_SIGNING_KEY``).

    Args:
        compiled: the result of ``compile``; its current weights are written.
        path: the file, ``NAME.pt2``, written atomically.
        engines: ``embed``; ``sidecar`` for files in the same folder, which are mapped on load; ``reference`` for
            engines taken from a cache on load.
        target: other targets to run on, such as ``x86-64-v3``, one or several; their engines are built, or taken from
            the cache. If given, the file contains these targets only.
        cache: the cache for engines of other targets; by default that of the ``TRTCACHE_*`` variables.

    Returns:
        A report with ``targets`` and ``files``.

    Raises:
        ProgramFileError: the module has no stored engines, or something in it cannot be written.
        RefitError: an engine weight is computed from model weights that have changed: refit the module with the model
            first.
        SettingsError: ``engines`` or a target is unknown, or the signing key cannot be read.
        BuildError: an engine for another target could not be built.
        OSError: the file cannot be written.
    """
    start, path = time.perf_counter(), Path(path)
    check_placement(engines)
    refuse_special_file(path)
    signing_key = _signing_key()  # before builds that take minutes
    contents = contents_of_module(compiled, str(path))
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    if targets:
        store = cache if isinstance(cache, Cache) else Cache(cache)
        contents = replace(
            contents, origins=tuple(build_for_target(contents, one, store, path) for one in dict.fromkeys(targets))
        )
    return _write(contents, path, engines, signing_key, start)


def export_program(
    program: torch.export.ExportedProgram,
    path: Path,
    *,
    engines: str,
    targets: Sequence[str],
    backend: str,
    settings: Settings,
    cache: Cache,
    name: str | None,
) -> ExportReport:
    """Build a program's engines for each target, or take them from the cache, and export it; nothing is loaded.

    Raises:
        ExportError: an operator cannot be decomposed.
        BackendUnavailableError: the backend is unknown or cannot build here.
        ProgramFileError: something in the program cannot be written.
        SettingsError: ``engines``, a setting or a target is unknown, or the signing key cannot be read.
        BuildForbiddenError: a build is needed and ``TRTCACHE_FORBID_BUILD=1``.
        BuildError: a build failed.
        OSError: the file cannot be written.
    """
    start = time.perf_counter()
    check_placement(engines)
    refuse_special_file(path)
    signing_key = _signing_key()  # before builds that take minutes
    source = ExportedSource(program, name or type(program).__name__)
    contents: ProgramContents | None = None
    for target in dict.fromkeys(targets or (None,)):
        request = source.request(CompileOptions(backend, settings, target))
        with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
            found = get_or_build_entries(request, cache, Path(folder), new_report(request))
            origin = provenance_of(request, request.division, found)
        if contents is None:
            lowered = request.program
            values = {slot.index: lowered.state[slot.names[0]].detach() for slot in lowered.interface.slots}
            call = CallSignature(lowered.in_spec, lowered.out_spec, signature_of(program))
            contents = ProgramContents(
                lowered.name,
                Executable.of(lowered),
                call,
                request.division,
                values,
                parameters_of(lowered.state),
                (origin,),
            )
        else:
            contents = replace(contents, origins=(*contents.origins, origin))
    assert contents is not None  # noqa: S101  # there is at least one target
    return _write(contents, path, engines, signing_key, start)


def _signing_key() -> SecretKey | None:
    signing = Config.from_environ(os.environ).trust.signing_key
    return SecretKey.read(signing) if signing is not None else None


def _write(
    contents: ProgramContents, path: Path, engines: str, signing_key: SecretKey | None, start: float
) -> ExportReport:
    files = save(contents, path, engines=engines, key=signing_key)
    return ExportReport(
        name=contents.name,
        backend=contents.backend,
        targets=tuple(one.label for one in contents.origins),
        engines=len(contents.origins[0].entries),
        files=tuple(files),
        size_bytes=sum(one.stat().st_size for one in files),
        signer=signing_key.name if signing_key else "",
        export_s=time.perf_counter() - start,
    )


def build_for_target(contents: ProgramContents, target: str, cache: Cache, path: Path) -> Provenance:
    """Return a program's engines for another target, from the cache or built.

    Raises:
        SettingsError: the target is unknown.
        ProgramFileError: the stored entries are not enough to rebuild the program.
    """
    origin = contents.origins[0]
    device = contents.executable.device
    backend = registry.find(origin.backend, device.type)
    resolved = backend.target(target, device)
    if canonical(resolved.document()) == dict(origin.target):
        return origin
    if origin.settings is None:
        raise ProgramFileError(str(path), "it was loaded from a file; export the module that trtcache.compile returned")
    requests: dict[int, TorchRequest] = {}
    for number, entry in origin.entries.items():
        program = _program(contents, number, entry, path)
        requests[number] = make_request(program, backend, origin.settings, resolved)
        _check_same_program(requests[number].key, entry.key, path)
    with tempfile.TemporaryDirectory(prefix="trtcache-build-") as folder:
        entries = {
            number: load_members(get_or_build_entry(request, cache, Path(folder) / str(number))[0])
            for number, request in requests.items()
        }
        first = next(iter(requests.values()), None)
        if first is None:
            raise SettingsError(f"target {target!r}", "the program has no engine")
        made = provenance_of(first, contents.division, entries)
        check_frozen(made, contents.executable.interface, contents.weights)  # partitions have those of ``compile``
    return replace(made, parameters=origin.parameters, settings=origin.settings)


def _check_same_program(rebuilt: CacheKey | CanonicalizationError, stored: CacheKey, path: Path) -> None:
    """Compare the parts of a key that describe a rebuilt program with those of the key of its stored engine."""
    if not isinstance(rebuilt, CacheKey):
        raise ProgramFileError(str(path), f"its stored graph has no key: {rebuilt}")
    document: Any = rebuilt.document
    expected = stored.parts
    if differing := [name for name in PROGRAM_PARTS if document["parts"].get(name) != expected.get(name)]:
        why = f"its stored graph gives another program when it is rebuilt ({', '.join(differing)} differ)"
        raise ProgramFileError(str(path), f"{why}; compile the model for that target instead")


def _program(contents: ProgramContents, number: int, entry: Entry, path: Path) -> LoweredProgram:
    """Return the lowered program of an engine, with current weights.

    Raises:
        ProgramFileError: the entry has no stored graph, or one that cannot be rebuilt.
    """
    if not contents.division.is_one_engine:
        return contents.division.engines[number].program
    if GRAPH not in entry.members:
        raise ProgramFileError(str(path), "its engine has no stored graph; compile the model for that target instead")
    parts = entry.key.parts
    members = {name: bytes(entry.read(name)) for name in entry.members if name != ENGINE}
    graph = json.loads(members[GRAPH])
    # The program is one engine: the outputs of its stored graph are the program's, in this order.
    interface, call = contents.executable.interface, contents.call
    results = iter(interface.results)
    outputs = graph["nodes"][-1][1]
    roles = tuple(Result("weight", f"s{target}") if kind == "weight" else next(results) for kind, target, _ in outputs)
    values = {one.leaf: one.value for one in interface.values}
    try:
        program = rebuild_program(
            members,
            name=contents.name,
            pipeline=[str(one) for one in parts["pipeline"]],
            hints=[contents.origins[0].example_sizes.get(number) for number in range(len(graph["sizes"]))],
            device=contents.executable.device,
            outside=CallStructure(call.in_spec, call.out_spec, roles, values),
        )
    except ValueError as error:
        why = f"its stored graph cannot be rebuilt ({error})"
        raise ProgramFileError(str(path), f"{why}; compile the model for that target instead") from error
    state: dict[str, torch.Tensor] = {f"s{index}": tensor for index, tensor in contents.weights.items()}
    return replace(program, state={**program.state, **state})

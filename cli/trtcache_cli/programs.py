"""Programs from files, for the commands that build or lower them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.compiler import inspect as looking
from trtcache.errors import CanonicalizationError, SettingsError
from trtcache.frontends.onnx.file import is_onnx
from trtcache.frontends.pt2 import ProgramFile
from trtcache.frontends.torchscript.program import converted, example_arguments, script_of
from trtcache_cli.shapes import read_examples, read_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

    from trtcache.digests import CacheKey
    from trtcache.frontends.onnx.ports import Sizes
    from trtcache.keys.stored_graph import StoredGraph
    from trtcache.lowering import LoweredProgram
    from trtcache.partition.outline import Outline


def open_program(path: Path, shapes: Sequence[str]) -> tuple[ExportedProgram | Path, dict[str, Sizes]]:
    """Return what the API is to be given for a file: a TorchScript file's program, or the path, with sizes for it.

    Raises:
        ExportError: a TorchScript file cannot be read or converted.
        SettingsError: its arguments are not those that the shapes say.
        click.BadParameter: a shape is written otherwise.
    """
    script = script_of(path)
    if script is None:
        return path, read_shapes(shapes)
    return converted(script, example_arguments(script, read_examples(shapes)), None, None), {}


def program_in(path: Path, shapes: Sequence[str]) -> ExportedProgram:
    """Return the program in a file.

    Raises:
        ExportError: the file holds no program.
        SettingsError: it has no arguments of the names that the shapes have, or is an ONNX file.
    """
    if is_onnx(path):
        raise SettingsError("FILE", f"{path.name} is an ONNX file: its plan is one file as it is (trtcache build -o)")
    program = _of_its_sizes(path, shapes)
    if isinstance(program, Path):
        with ProgramFile(program) as file:
            return file.program()
    return program


def lower_file(path: Path, backend: str, shapes: Sequence[str] = ()) -> LoweredProgram:
    """Return the lowered program in a file; its ``runs`` have what each pass changed.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
    """
    return looking.lower(_of_its_sizes(path, shapes), backend=backend, name=path.stem, trace=True)


def outline_file(path: Path, backend: str, settings: Mapping[str, object], shapes: Sequence[str]) -> Outline:
    """Return in which parts the program in a file is run.

    Raises:
        ExportError: the file holds no program that can be lowered.
        BackendUnavailableError: the backend is unknown or cannot run here.
        PartitionError: the settings want one engine, and something would stay in torch.
        SettingsError: a setting is unknown, or the arguments are not those that the shapes say.
    """
    return looking.outline(_of_its_sizes(path, shapes), backend=backend, settings=settings, name=path.stem)


def _of_its_sizes(path: Path, shapes: Sequence[str]) -> ExportedProgram | Path:
    program, inputs = open_program(path, shapes)
    if inputs:
        raise SettingsError("--shape", f"{path.name} has sizes of its own; it is for TorchScript files here")
    return program


def find_key(
    path: Path, backend: str, target: str | None, shapes: Sequence[str]
) -> tuple[CacheKey | None, StoredGraph | None, str]:
    """Return the key that ``compile`` would ask for, the graph, and if there can be no key why.

    ``shapes`` are sizes for what the file leaves open.

    Raises:
        ExportError: the file holds no program that can be lowered.
        PassError: a pass broke its contract.
        BackendUnavailableError: the backend is unknown or cannot run here.
        SettingsError: the target is unknown.
    """
    try:
        program, inputs = open_program(path, shapes)
        key, graph = looking.described(program, backend=backend, target=target, inputs=inputs, name=path.stem)
    except CanonicalizationError as error:
        return None, None, str(error)
    return key, graph, ""

"""Load programs from files, for the commands that build or lower them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import SettingsError
from trtcache.frontends.onnx.file import is_onnx
from trtcache.frontends.pt2 import SUFFIX, Pt2Source
from trtcache.frontends.resolve import is_script_file, resolve
from trtcache.frontends.torchscript import convert_script, example_arguments, load_script
from trtcache_cli.shapes import read_examples, read_shapes
from trtcache_cli.subjects import is_function

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.frontends.onnx.interface import ShapeProfile


def open_program(path: Path, shapes: Sequence[str]) -> tuple[ExportedProgram | Path, dict[str, ShapeProfile]]:
    """Return what the API takes, and the sizes of ``--shape``.

    It takes the exported program of a function or of a TorchScript file, and the path of any other file.

    Raises:
        ExportError: a TorchScript file cannot be read or converted, or a function's model cannot be exported.
        SettingsError: arguments do not match the shapes, a file has sizes of its own, or a function is not found.
        click.BadParameter: a shape is malformed.
    """
    if is_function(path):
        if shapes:
            raise SettingsError("--shape", f"{path} returns example inputs, which have shapes")
        return export_function(str(path)), {}
    if not is_script_file(path):
        if shapes and path.suffix == SUFFIX:
            raise SettingsError("--shape", f"{path.name} has sizes of its own; export one file per set of sizes")
        return path, read_shapes(shapes)
    script = load_script(path)
    return convert_script(script, example_arguments(script, read_examples(shapes)), None, None), {}


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())  # an error is one line
    is_plain = isinstance(error, (ImportError, AttributeError, SyntaxError))  # whose texts say what they are
    return text if is_plain else f"{type(error).__name__}: {text}"


def export_function(location: str) -> ExportedProgram:
    """Import and call ``MODULE:FUNCTION``, and export the model that it returns. The current folder is searched first.

    Raises:
        SettingsError: the module or the function cannot be imported, or the function raises, or it does not return a
            model and its inputs.
        ExportError: the model cannot be exported.
    """
    import torch

    module_name, _, name = location.partition(":")
    if module_name.endswith(".py"):  # Python would run a.py, and then look for a module py in it
        module = Path(module_name).with_suffix("").as_posix().replace("/", ".").lstrip(".")
        what = "is a file" if Path(module_name).is_file() else "would be a file"
        raise SettingsError(location, f"{module_name} {what}, and a module is needed: write {module}:{name}")
    with _current_folder_first():
        try:
            function = getattr(import_module(module_name), name)
        except (Exception, SystemExit) as error:  # code of the user's own, such as a script without a main guard
            raise SettingsError(location, f"it cannot be imported: {_describe(error)}") from error
        try:
            found = function()
        except (Exception, SystemExit) as error:
            raise SettingsError(location, f"it raised {_describe(error)}") from error
        if not (isinstance(found, tuple) and 2 <= len(found) <= 3 and isinstance(found[0], torch.nn.Module)):
            raise SettingsError(location, "it has to return (model, args) or (model, args, kwargs)")
        with resolve(*found, name=name) as source:
            return source.program()


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Search the current folder first for imports, while the block runs. Other changes of the path stay."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the user's code has removed it
            sys.path.remove(folder)


def load_program(path: Path, shapes: Sequence[str]) -> ExportedProgram:
    """Load the program in a file.

    Raises:
        ExportError: the file is not a program.
        SettingsError: ``--shape`` names an unknown input, or the file is an ONNX file.
    """
    if is_onnx(path):
        raise SettingsError(
            "FILE", f"{path.name} is an ONNX file: its plan is already a single file (trtcache build -o)"
        )
    program = open_without_shapes(path, shapes)
    if isinstance(program, Path):
        with Pt2Source(program) as file:
            return file.program()
    return program


def open_without_shapes(path: Path, shapes: Sequence[str]) -> ExportedProgram | Path:
    """Return the argument for the API of a program whose sizes are in it."""
    program, inputs = open_program(path, shapes)
    if inputs:
        raise SettingsError("--shape", f"{path.name} already has sizes; here --shape is for TorchScript files only")
    return program

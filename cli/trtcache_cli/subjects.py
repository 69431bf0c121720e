"""What a command's argument names: a file, ``MODULE:FUNCTION``, or else a key. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path

from trtcache.config.paths import PROGRAM_SUFFIXES
from trtcache.errors import ModelFileError


def is_function(subject: str | Path) -> bool:
    """Return whether an argument is ``MODULE:FUNCTION``: Python names and dots, a colon and a name, and no file.

    ``folder/module.py:function`` is one as well; importing it says how to write it.
    """
    module, colon, function = str(subject).partition(":")
    is_module = all(map(str.isidentifier, module.split("."))) or module.endswith(".py")
    return bool(colon) and is_module and function.isidentifier() and not Path(subject).exists()


def program_name(path: Path) -> str:
    """Return the name of a program: that of its function, or of its file without the suffix."""
    return str(path).rpartition(":")[2] if is_function(path) else path.stem


def require_file(path: Path) -> None:
    """Refuse what is neither a file nor ``MODULE:FUNCTION``, before torch is imported.

    Raises:
        ModelFileError: there is no file.
    """
    if path.is_dir():
        raise ModelFileError(str(path), "it is a directory; give a .pt2 or .onnx file, or MODULE:FUNCTION")
    if not (path.exists() or is_function(path)):
        raise ModelFileError(str(path), "the file does not exist")


def is_program(subject: str | Path) -> bool:
    """Return whether an argument names a program and not a key: a file, one of a known suffix, or a function.

    ``b3:`` begins a key.
    """
    path = Path(subject)
    is_key = str(subject).startswith("b3:")
    return path.suffix in PROGRAM_SUFFIXES or path.is_file() or (is_function(subject) and not is_key)

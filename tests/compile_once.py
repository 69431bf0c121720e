"""A C++ compiler that compiles each source once in a session of tests: ``g++``, before the real one on the ``PATH``.

Many tests build the same small programs in caches of their own, and 9 of 10 seconds of a build are the compiler's. What
it makes depends on the command and the source alone, so the object file of an equal command is copied. Everything else
is as ever: Inductor generates the sources, links them, and packages them for each build. Nothing is kept of a command
that fails, nor for another session.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

NAME = "compile_once"
"""The name of the program's folder."""

_FOLDER = Path(__file__).parent
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX")


def install(folder: Path) -> None:
    """Write the program into a folder, which other processes may do at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{os.getpid()}.new"
    new.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    new.chmod(0o755)
    new.replace(folder / "g++")


def afresh(path: str) -> str:
    """Return a ``PATH`` without the program, with which everything is compiled."""
    return os.pathsep.join(place for place in path.split(os.pathsep) if Path(place).name != NAME)


def count(folder: Path) -> tuple[int, int]:
    """Return how many files were compiled, and how many were those of an equal command."""
    log = folder / "log"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return lines.count("compiled"), lines.count("copied")


def main(arguments: list[str]) -> int:
    """Compile, or copy what was compiled; return the exit code."""
    real = shutil.which("g++", path=afresh(os.environ["PATH"]))
    if real is None:
        sys.stderr.write("g++: not found\n")
        return 127
    sources = [Path(argument) for argument in arguments if argument.endswith(".cpp")]
    if not sources or "-c" not in arguments or arguments.count("-o") != 1 or not all(map(Path.is_absolute, sources)):
        os.execv(real, [real, *arguments])  # noqa: S606  # the compiler
    place = arguments.index("-o") + 1
    made = Path(arguments.pop(place))
    contents = [_code(path) for path in sources if path.exists()]
    # The messages in torch's headers name the source.
    named = [word for word in arguments if not word.endswith(".cpp") or any(b"torch/" in text for text in contents)]
    command = [real, *named, *(os.environ.get(name, "") for name in _VARIABLES)]
    kept = _FOLDER / hashlib.sha256(b"\0".join([*map(os.fsencode, command), *contents])).hexdigest()
    if kept.exists():
        shutil.copyfile(kept, made)
        return _report("copied")
    arguments.insert(place, str(made))
    if code := os.spawnv(os.P_WAIT, real, [real, *arguments]):  # noqa: S606
        return code if code > 0 else 128 - code
    new = kept.with_suffix(f".{os.getpid()}")
    shutil.copyfile(made, new)
    new.replace(kept)
    return _report("compiled")


def _code(path: Path) -> bytes:
    """Return a source without the comments at its end: Inductor adds the command after each build."""
    lines = path.read_bytes().splitlines()
    while lines and (not lines[-1] or lines[-1].startswith(b"//")):
        lines.pop()
    return b"\n".join(lines)


def _report(line: str) -> int:
    with (_FOLDER / "log").open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A C++ compiler that compiles each source once in a session of tests: ``g++``, before the real one on the ``PATH``.

Many tests build the same small programs in caches of their own, and 9 of 10 seconds of a build are the compiler's. What
it makes depends on the command and the source alone, so the object file of an equal command is copied. Everything else
is as ever: Inductor generates the sources, links them, and packages them for each build. Nothing is kept of a command
that fails, nor for another session.

Four of five seconds of a wrapper go into what is the same in all of them: its first half, which is torch's interface
of a package, and one function of torch's headers, which reads the name of a device by a regular expression. Both are
compiled once too, and joined to the second half of each wrapper, which is compiled with headers that only declare the
function, and that are precompiled when many wrappers follow.

Inductor precompiles two headers for each set of flags, 8 s each. The wrappers' is not used here, and the kernels' is
made when many kernels have used it.
"""

import fcntl
import hashlib
import os
import shutil
import sys
from pathlib import Path

NAME = "compile_once"
"""The name of the program's folder."""

_FOLDER = Path(__file__).parent
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX")

_MANY = 3  # so many wrappers with equal flags take as long as the precompiled header saves
_WRAPPER = ".wrapper.cpp"
_INTERFACE, _END = 'extern "C" {\n', '} // extern "C"\n'
_RUNTIME = "torch/csrc/inductor/aoti_runtime/model_base.h"
_FUNCTION = "inline void parse_device_str("
_DECLARED = "void parse_device_str(const std::string&, int32_t&, int32_t&);"
_USED = "namespace { [[gnu::used]] auto* const used = &torch::aot_inductor::parse_device_str; }\n"


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
    if "c++-header" in arguments:
        return _record_header(arguments)
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
    if len(sources) > 1 or not _compile_wrapper(real, arguments, sources[0], made):
        if not sources[0].name.endswith(_WRAPPER):
            _make_header(real, arguments)
        arguments.insert(place, str(made))
        if code := _run(real, arguments):
            return code if code > 0 else 128 - code
    new = kept.with_suffix(f".{os.getpid()}")
    shutil.copyfile(made, new)
    new.replace(kept)
    return _report("compiled")


def _run(real: str, arguments: list[str]) -> int:
    return os.spawnv(os.P_WAIT, real, [real, *arguments])  # noqa: S606  # the compiler


def _compile_wrapper(real: str, arguments: list[str], source: Path, made: Path) -> bool:
    """Compile a wrapper with the half that all have, if that is there by now; return whether it was compiled."""
    first, end, second = source.read_text(encoding="utf-8").partition(_END)
    if not source.name.endswith(_WRAPPER) or not end or _INTERFACE not in first:
        return False
    flags = [word for word in arguments if word not in ("-c", "-o", str(source))]
    if "-include" in flags:  # Inductor's precompiled header, in place of which there is one here
        place = flags.index("-include")
        del flags[place : place + 2]
    folder = _FOLDER / hashlib.sha256("\0".join([*flags, first]).encode()).hexdigest()
    folder.mkdir(exist_ok=True)
    (folder / f"wrapper.{os.getpid()}").touch()
    if len(list(folder.glob("wrapper.*"))) == 1:  # the half takes longer than the wrapper, which may be the only one
        return False
    include = _headers(flags)
    if include is None or not _make_half(real, folder, first + end, include, flags):
        return False
    part, half = made.with_suffix(f".{os.getpid()}.o"), made.with_suffix(f".{os.getpid()}.cpp")
    lines = first.count("\n") + 2
    half.write_text(f'{first.partition(_INTERFACE)[0]}#line {lines} "{source}"\n{second}', encoding="utf-8")
    changed = _changed(folder, include, flags)
    compiled = ["-include", str(folder / "headers.h"), *changed, "-c", str(half), "-o", str(part)]
    joined = ["-r", str(part), str(folder / "half.o"), "-o", str(made)]
    is_made = not _run(real, compiled) and not _run(real, joined)
    for path in (part, half):
        path.unlink(missing_ok=True)
    return is_made


def _headers(flags: list[str]) -> Path | None:
    """Return the folder of torch's headers."""
    folders = [Path(word[2:]) for word in flags if word.startswith("-I")]
    return next((folder for folder in folders if (folder / _RUNTIME).exists()), None)


def _changed(folder: Path, include: Path, flags: list[str]) -> list[str]:
    """Return flags for the headers that only declare the function; messages name torch's own headers."""
    return [f"-I{folder}", f"-fmacro-prefix-map={folder}={include}", *flags]


def _make_half(real: str, folder: Path, half: str, include: Path, flags: list[str]) -> bool:
    """Compile what all wrappers have, and later headers that only declare the function; return whether it is there."""
    precompiled, new = folder / "headers.h.gch", folder / "compiled.new"  # not of a name that a header has
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "half.o").exists():
            before, function, rest = (include / _RUNTIME).read_text(encoding="utf-8").partition(_FUNCTION)
            body, end, after = rest.partition("\n}\n")
            lines = "\n" * (function + body + end).count("\n")
            (folder / _RUNTIME).parent.mkdir(parents=True, exist_ok=True)
            (folder / _RUNTIME).write_text(f"{before}{_DECLARED}{lines}{after}", encoding="utf-8")
            included = [line for line in half.splitlines() if line.startswith("#include")]
            (folder / "headers.h").write_text("\n".join([*included, ""]), encoding="utf-8")
            (folder / "half.cpp").write_text(half + _USED, encoding="utf-8")
            if not end or _run(real, [*flags, "-c", str(folder / "half.cpp"), "-o", str(new)]):
                return False
            new.replace(folder / "half.o")
        if not precompiled.exists() and len(list(folder.glob("wrapper.*"))) > _MANY:
            header = ["-x", "c++-header", str(folder / "headers.h"), "-o", str(new)]
            if not _run(real, [*_changed(folder, include, flags), *header]):
                new.replace(precompiled)
    return True


def _record_header(arguments: list[str]) -> int:
    """Record the command that precompiles a header. Until it is run, the compiler reads the header itself."""
    record = _header_record(arguments[arguments.index("-o") + 1])
    new = record.with_suffix(f".{os.getpid()}")
    new.write_text("\0".join(arguments), encoding="utf-8")
    new.replace(record)
    return 0


def _make_header(real: str, arguments: list[str]) -> None:
    """Precompile the header that a command includes, once Inductor has requested it and several commands use it."""
    if "-include" not in arguments:
        return
    precompiled = arguments[arguments.index("-include") + 1] + ".gch"
    record = _header_record(precompiled)
    if not record.exists() or Path(precompiled).exists():
        return
    uses = record.with_suffix(".uses")
    with uses.open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("+")
        lock.flush()
        if uses.stat().st_size > _MANY and not Path(precompiled).exists():
            new = f"{precompiled}.{os.getpid()}"
            command = record.read_text(encoding="utf-8").split("\0")
            command[command.index("-o") + 1] = new
            if not _run(real, command):
                Path(new).replace(precompiled)


def _header_record(precompiled: str) -> Path:
    """Return the file with the command that makes a precompiled header."""
    return _FOLDER / f"{hashlib.sha256(os.fsencode(precompiled)).hexdigest()}.header"


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

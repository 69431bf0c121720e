"""``trtcache run``: run an unmodified program with torch_tensorrt cached."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.environment import Config
from trtcache.integrations.torch_tensorrt.installation import RUN
from trtcache_cli.session import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

_STARTUP = "startup"


class _Run(click.Command):
    """Explain an unknown option of ``run`` that may belong to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before the program.

        Raises:
            click.NoSuchOption: ``run`` does not have the option.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            why = f"run has no option {error.option_name}, and options of the program come after it."
            raise click.NoSuchOption(error.option_name, why, error.possibilities, error.ctx) from error


@click.command(
    cls=_Run,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "trtcache run serve.py --port 8000",
        "trtcache run -m my_server --port 8000",
        "trtcache run torchrun --nproc-per-node 2 serve.py",
    ),
)
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Use this cache directory instead of TRTCACHE_DIR or the default.",
)
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(program: str, args: tuple[str, ...], is_module: bool, cache_dir: Path | None) -> None:
    """Run a program with torch_tensorrt's engines cached, without changes to it.

    PROGRAM is a Python script, with -m a module, or else a command. This process is replaced by the program, with its
    arguments, signals and exit code. Child processes of the program use the cache too.
    """
    line = command_line(program, args, is_module=is_module)
    environ = environment(os.environ, cache_dir)
    Config.from_environ(environ)  # report an invalid setting here, not in the program
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(line[0], line, environ)  # noqa: S606  # the user's command


def command_line(program: str, args: tuple[str, ...], *, is_module: bool) -> list[str]:
    """Return the program's command line: this Python for a script or a module, else a command from ``PATH``.

    Raises:
        click.BadParameter: it is neither a file nor a command.
    """
    if is_module:
        return [sys.executable, "-m", program, *args]
    if program == "-" or _is_for_python(Path(program)):
        return [sys.executable, program, *args]
    command = shutil.which(program)
    if command is None:
        raise click.BadParameter(f"{program!r} {_what_it_is(Path(program))}", param_hint="PROGRAM")
    return [command, *args]


def _what_it_is(path: Path) -> str:
    """Return why a path cannot be run."""
    if path.is_dir():
        return "is a directory without __main__.py"
    if path.is_file():
        return "is a script for another program, and not executable"
    return "is neither a file nor a command"


def _is_for_python(path: Path) -> bool:
    """Return whether Python runs a path: a script that is not executable or has a Python suffix, or a package."""
    if path.is_file():
        return path.suffix in {".py", ".pyc", ".pyz"} or not (os.access(path, os.X_OK) or _is_for_another(path))
    return (path / "__main__.py").is_file()


def _is_for_another(path: Path) -> bool:
    """Return whether a script's first line names an interpreter other than Python."""
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" not in first


def environment(environ: Mapping[str, str], cache_dir: Path | None) -> dict[str, str]:
    """Return an environment in which every new Python process caches torch_tensorrt's engines."""
    import trtcache.integrations

    startup = str(Path(str(trtcache.integrations.__file__)).parent / _STARTUP)
    paths = [startup, *(path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path not in {"", startup})]
    changed = {**environ, "PYTHONPATH": os.pathsep.join(paths), RUN: str(os.getpid())}
    if cache_dir is not None:
        changed["TRTCACHE_DIR"] = str(cache_dir.absolute())
        changed.pop("TRTCACHE_PATH", None)
    return changed

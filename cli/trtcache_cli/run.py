"""``trtcache run``: any program, unchanged, with the cache before torch_tensorrt."""

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
    """Tells a misspelt option of its own from one of the program's that stands in the wrong place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what comes before the program.

        Raises:
            click.NoSuchOption: there is an option that ``run`` does not have.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            why = f"run has no option {error.option_name}, and the program's own come after it."
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
    """Run a program so that torch_tensorrt takes its engines from the cache. Nothing in it has to change.

    PROGRAM is a Python script, with -m a module, or else a command. This process becomes the program: its arguments,
    signals and exit code are its own. Programs that it starts use the cache as well.
    """
    line = command_line(program, args, is_module=is_module)
    environ = environment(os.environ, cache_dir)
    Config.from_environ(environ)  # an impossible setting is told here, not in the program
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(line[0], line, environ)  # noqa: S606  # what the caller typed


def command_line(program: str, args: tuple[str, ...], *, is_module: bool) -> list[str]:
    """Return the program's command line: this Python for a script or a module, else a command from ``PATH``.

    Raises:
        click.BadParameter: there is neither such a file nor such a command.
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
        return "is a folder without __main__.py"
    if path.is_file():
        return "is a script for another program, and not executable"
    return "is neither a file nor a command"


def _is_for_python(path: Path) -> bool:
    """Say whether a file is a script, or a folder a program: what cannot be run by itself, or is named as Python's."""
    if path.is_file():
        return path.suffix in {".py", ".pyc", ".pyz"} or not (os.access(path, os.X_OK) or _is_for_another(path))
    return (path / "__main__.py").is_file()


def _is_for_another(path: Path) -> bool:
    """Say whether a script names a program other than Python in its first line."""
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" not in first


def environment(environ: Mapping[str, str], cache_dir: Path | None) -> dict[str, str]:
    """Return the environment in which every Python that starts has the cache before torch_tensorrt."""
    import trtcache.integrations

    startup = str(Path(str(trtcache.integrations.__file__)).parent / _STARTUP)
    paths = [startup, *(one for one in environ.get("PYTHONPATH", "").split(os.pathsep) if one not in {"", startup})]
    changed = {**environ, "PYTHONPATH": os.pathsep.join(paths), RUN: str(os.getpid())}
    if cache_dir is not None:
        changed["TRTCACHE_DIR"] = str(cache_dir.absolute())
        changed.pop("TRTCACHE_PATH", None)
    return changed

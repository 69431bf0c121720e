"""``trtcache run``: run an unmodified program with torch_tensorrt cached."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from trtcache.config.environment import Config
from trtcache.integrations.torch_tensorrt.installation import RUN
from trtcache_cli.session import cache_dir_option, examples

_STARTUP = "startup"
_FLUSH = "TRTCACHE_REMOTE_FLUSH"
_UNTIL_DONE_S = "86400"


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
@cache_dir_option()
@click.option("--require-remote", is_flag=True, help="Exit with 4 if a look-up in a remote or an upload failed.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(program: str, args: tuple[str, ...], is_module: bool, cache_dir: Path | None, require_remote: bool) -> int:
    """Run a program with torch_tensorrt's engines cached, without changes to it.

    PROGRAM is a Python script, with -m a module, or else a command. This process is replaced by the program, with its
    arguments, signals and exit code. Child processes of the program use the cache too.

    At its exit, the program waits until its uploads to a remote have ended, unless TRTCACHE_REMOTE_FLUSH is set. With
    --require-remote, the program is a child process of this one, which forwards signals and has the program's exit code
    unless that is 0 and a look-up or an upload failed.
    """
    line = command_line(program, args, is_module=is_module)
    environ = environment(os.environ, cache_dir)
    config = Config.from_environ(environ)  # report an invalid setting here, not in the program
    if config.remotes.target is not None:
        environ.setdefault(_FLUSH, _UNTIL_DONE_S)
    sys.stdout.flush()
    sys.stderr.flush()
    if not require_remote:
        os.execve(line[0], line, environ)  # noqa: S606  # the user's command
    return _run_and_check(line, environ, config)


def _run_and_check(line: list[str], environ: dict[str, str], config: Config) -> int:
    from trtcache_cli.require_remote import report_failures, require_usable_remote, summed_logs

    store, began_ns = require_usable_remote(config), time.time_ns()
    summed, waited = summed_logs(store), store.outbox.digests()
    child = os.fork()
    if child == 0:
        os.execve(line[0], line, {**environ, RUN: str(os.getpid())})  # noqa: S606  # the user's command
    # The terminal sends Ctrl-C to both; a signal to this process alone is meant for the program.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return 128 - code
    return code or report_failures(store, began_ns, summed, waited)


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
    if path.is_file() and os.access(path, os.X_OK):
        return f"is not on PATH; write ./{path}"
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
    before = environ.get("PYTHONPATH", "")
    # An empty element of a list is the current directory.
    paths = [startup, *(path for path in before.split(os.pathsep) if before and path != startup)]
    changed = {**environ, "PYTHONPATH": os.pathsep.join(paths), RUN: str(os.getpid())}
    if cache_dir is not None:
        changed["TRTCACHE_DIR"] = str(cache_dir.absolute())
        changed.pop("TRTCACHE_PATH", None)
    return changed

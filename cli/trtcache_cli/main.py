"""Entry point: the table of commands, and the mapping of errors to exit codes."""

from __future__ import annotations

import codecs
import io
import logging
import os
import select
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from trtcache.config.environment import start_logging
from trtcache.errors import RemoteError, TrtcacheError
from trtcache_cli.command_group import CommandGroup
from trtcache_cli.output import complain, discard
from trtcache_cli.presentation import add_presentation, presentation_options
from trtcache_cli.termination import Terminated

_logger = logging.getLogger("trtcache_cli")

PROGRAM = "trtcache"
_STANDARD_OUTPUT = 1

COMMANDS = {
    "run": ("trtcache_cli.run:run", "Run a program with torch_tensorrt cached."),
    "init": ("trtcache_cli.init:init", "Create a store, for yourself or for a group, or prepare a remote."),
    "ls": ("trtcache_cli.ls:ls", "List the entries, or those of a remote."),
    "show": ("trtcache_cli.show:show", "Show one entry: header, members, key document."),
    "build": ("trtcache_cli.build:build", "Build the engine of an exported program, or find it in the cache."),
    "warm": ("trtcache_cli.warm:warm", "Build the engines of a matrix before they are needed."),
    "export": ("trtcache_cli.export:export", "Write a program with its engines to a file, for other machines."),
    "infer": ("trtcache_cli.infer:infer", "Call a program in a file, and measure its latency."),
    "rebuild": ("trtcache_cli.rebuild:rebuild", "Rebuild kept programs for the installed versions."),
    "refit": ("trtcache_cli.refit:refit", "Check weights for a program or an entry, or write it with them."),
    "why": ("trtcache_cli.why:why", "Explain a miss, or how the nearest entry differs."),
    "diff": ("trtcache_cli.diff:diff", "Explain how two entries differ."),
    "lower": ("trtcache_cli.lower:lower", "Show a program's lowered graph, and what each pass changes."),
    "partition": ("trtcache_cli.partition:partition", "Show which nodes run in an engine, and which in torch."),
    "stats": ("trtcache_cli.stats:stats", "Show hits, misses by reason, sizes and the time saved."),
    "report": ("trtcache_cli.report:report", "Report on a cache or a remote, as text or as a page."),
    "prune": ("trtcache_cli.prune:prune", "Evict entries by size, age, idleness or filter."),
    "sync": ("trtcache_cli.sync:sync", "Copy missing entries between stores and remotes."),
    "push": ("trtcache_cli.push:push", "Upload the builds that wait in the outbox."),
    "adopt": ("trtcache_cli.adopt:adopt", "List another tool's engine cache, and import its engines."),
    "pin": ("trtcache_cli.pin:pin", "Protect entries from pruning."),
    "unpin": ("trtcache_cli.pin:unpin", "Allow pruning of entries again."),
    "rm": ("trtcache_cli.rm:rm", "Remove entries by key."),
    "clean": ("trtcache_cli.clean:clean", "Remove all entries except pinned ones."),
    "verify": ("trtcache_cli.verify:verify", "Check every byte of every entry."),
    "trust": ("trtcache_cli.trust:trust", "Create signing keys, and manage trusted keys."),
    "dir": ("trtcache_cli.dir:print_dir", "Print the cache directory."),
    "threads": ("trtcache_cli.threads:threads", "Show thread counts, and where they come from."),
    "tune": ("trtcache_cli.tune:tune", "Measure latency and throughput over threads and runners."),
    "config": ("trtcache_cli.config:config", "Show settings and where they come from, or change one."),
    "backends": ("trtcache_cli.backends:backends", "List the backends, with their devices, state and settings."),
    "doctor": ("trtcache_cli.doctor:doctor", "Check what works on this machine."),
    "selftest": ("trtcache_cli.selftest:selftest", "Test a backend on this machine, and write a report."),
    "demo": ("trtcache_cli.demo:demo", "Compile a real model twice, the second time from the cache."),
    "completion": ("trtcache_cli.completion:completion", "Print a shell completion script."),
}
"""Name -> (location of the command, its help line). The module is imported when the command runs."""

GROUPS = {
    "Everyday": (
        "run",
        "build",
        "warm",
        "ls",
        "show",
        "stats",
        "prune",
        "pin",
        "unpin",
        "rm",
        "clean",
        "config",
        "dir",
    ),
    "Sharing": ("init", "trust", "sync", "push", "export", "infer", "refit", "rebuild", "adopt"),
    "Inspection": ("why", "diff", "lower", "partition", "report", "threads", "tune"),
    "Diagnosis": ("backends", "doctor", "selftest", "verify", "demo", "completion"),
}
"""Title in the help -> its commands; a test compares them with the table."""

_COPIED = "what was copied stays; run it again for the rest"
_BUILT = "complete entries stay in the cache, and nothing else was stored"
_REMOVED = "what was removed is gone; run it again for the rest"
LEFT = {
    **dict.fromkeys(("build", "export", "warm", "tune", "rebuild"), _BUILT),
    **dict.fromkeys(("sync", "push", "adopt"), _COPIED),
    **dict.fromkeys(("prune", "rm", "clean"), _REMOVED),
}
"""Command -> what it leaves if it is interrupted at work."""

_EPILOG = """\b
Examples:
  trtcache run serve.py
  trtcache ls --filter 'size>100MB,unused>7d'
  trtcache prune --max-size 10GB --dry-run
  trtcache stats --json

\b
Exit codes:
  0    success
  1    another error
  2    wrong usage or an invalid setting
  3    the store is unusable (not a store, unsafe, read-only, locked)
  4    something in the store is damaged; --require-remote: a remote failed
  5    no entry, or more than one, has this key
  6    an engine builder failed or is not available
  7    a build or torch was forbidden by TRTCACHE_FORBID_BUILD or TRTCACHE_NO_TORCH
  130  interrupted, or declined; 143 or 129: a build was ended by SIGTERM or SIGHUP
"""


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End with success if the reader of standard output has closed it, such as ``head``; click would exit with 1."""
    try:
        yield
    except BrokenPipeError as error:
        if _has_no_reader(_STANDARD_OUTPUT):
            discard(sys.stdout)
            raise click.exceptions.Exit(0) from None
        raise click.ClickException("another process closed a pipe") from error  # not silence, as click would


def _has_no_reader(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)  # POLLERR is always returned
    return any(event & select.POLLERR for _, event in poll.poll(0))


class Commands(CommandGroup):
    """A group that imports a command only to run it or to show its help."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments, which prints the help and the version."""
        with _reader_may_leave():
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help`` as ``--help``, and ``version`` as ``--version``."""
        if args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, ["--help"] if args == ["help"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Read ``help COMMAND`` as ``COMMAND --help``, as git does."""
        return super().resolve_command(ctx, [*args[1:], "--help"] if args[0] == "help" and args[1:] else args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; if Ctrl-C interrupts it, print what it left. Tell which command was used wrongly."""
        try:
            with _reader_may_leave():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            left = LEFT.get(ctx.invoked_subcommand or "")
            click.echo(f"\n{PROGRAM}: interrupted" + (f"; {left}" if left else ""), err=True)
            raise
        except EOFError as error:  # click would end without a message, as after Ctrl-C
            _logger.debug("the command failed", exc_info=True)
            raise click.ClickException(_unexpected_text(error)) from error
        except click.UsageError as error:
            if error.ctx is None and ctx.invoked_subcommand in COMMANDS:  # which help the message names
                error.ctx = click.Context(click.Command(None), info_name=ctx.invoked_subcommand, parent=ctx)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """Import and return a command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101  # the table names commands
        return add_presentation(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        """Write the table in groups, without importing any command."""
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])


@click.command(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    None, "-V", "--version", package_name=PROGRAM, message=f"{PROGRAM} %(version)s", help="Print the version."
)
def cli() -> None:
    """Inspect and maintain the cache of compiled inference engines."""


cli.params += presentation_options()


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: one line on standard error for an error, no traceback, a documented exit code."""
    _open_missing_streams()
    _escape_unencodable()
    logging.basicConfig(format=f"{PROGRAM}: %(levelname)s: %(message)s", level=logging.WARNING)
    try:
        code = _run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)  # the reader of a pipe has closed it
        code = 0
    except OSError as error:
        discard(sys.stdout)
        code = _fail(f"standard output: {error.strerror}", 1)
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open /dev/null in place of a closed standard stream, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open until exit


def _escape_unencodable() -> None:
    r"""Print characters that the encoding of a stream lacks as ``\u4e2d``; they would end the command with an error.

    Where a locale prints the bytes of any file name unchanged, as ``C`` does, it still does.
    """
    codecs.register_error("trtcache", _bytes_or_escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
            stream.reconfigure(errors="trtcache" if stream.errors == "surrogateescape" else "backslashreplace")


def _bytes_or_escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _run(args: Sequence[str] | None) -> int:
    try:
        start_logging(os.environ)
        code = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        return _fail(_with_remedy(error), error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:  # click raises Abort for both answers: Ctrl-C and no
        return error.__cause__.exit_code if isinstance(error.__cause__, Terminated) else 130
    except RemoteError as error:
        return _fail(_remote_error_text(error), error.exit_code)
    except TrtcacheError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        if _was_printing(error):
            raise
        return _fail(_os_error_text(error), 1)
    except Exception as error:  # bugs are reported in one line too
        _logger.debug("the command failed", exc_info=True)
        return _fail(_unexpected_text(error), 1)
    return code if isinstance(code, int) else 0


def _was_printing(error: OSError) -> bool:
    """Return whether the code that prints raised an error: one of standard output has no path.

    Raises:
        OSError: standard output cannot be written.
    """
    if error.filename is not None:
        return False
    sys.stdout.flush()  # it still has what fits into its buffer
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].partition(".")[0] in {"click", "rich", "trtcache_cli"}


def _unexpected_text(error: Exception) -> str:
    """Return the first line of an error that no command expects."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"unexpected {type(error).__name__}: {first}; TRTCACHE_LOG=cli shows where"


def _remote_error_text(error: RemoteError) -> str:
    """Return the message, with what to do about a remote that refuses every request."""
    from trtcache.remote.connection import REMEDIES  # other commands do not need it

    remedy = REMEDIES.get(error.reason, "")
    return str(error) if remedy in error.why else f"{error}; {remedy}"


def _os_error_text(error: OSError) -> str:
    """Return the message without Python's number, after the path if there is one."""
    if error.filename is None or not error.strerror:
        return error.strerror or str(error)
    path = error.filename.decode(errors="replace") if isinstance(error.filename, bytes) else error.filename
    return f"{path}: {error.strerror}"


def _with_remedy(error: click.UsageError) -> str:
    """Return the message; where click's own only says what is wrong, name the help."""
    message = " ".join(line.strip() for line in error.format_message().splitlines())  # choices are lines of their own
    if any(part in message for part in ("; ", "id you mean", " one of ")):
        return message.rstrip(".")
    path = error.ctx.command_path if error.ctx else PROGRAM
    return f"{message.rstrip('.')}; see '{path} --help'"


def _fail(message: str, code: int) -> int:
    complain(f"{PROGRAM}: error: {message}")
    return code

"""``trtcache doctor``: check what works on this machine, with advice for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.backends.fitness import Check, distribution_version
from trtcache_cli import probes
from trtcache_cli.directory_checks import examine_directory
from trtcache_cli.output import note, on_terminal, print_json, print_tsv
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache.config.environment import Config

_COLOURS = {"ok": "green", "note": "yellow", "missing": "yellow", "bad": "red"}


@click.command(epilog=examples("trtcache doctor", "trtcache doctor --quick --json", "trtcache doctor /mnt/engines"))
@click.argument("path", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--quick", is_flag=True, help="Skip builds and exports in child processes, which take about 30 s.")
@session_options
def doctor(session: Session, path: Path | None, quick: bool) -> int:
    """Check what is installed, what each backend can do here, and whether the cache directory is usable.

    PATH: test this directory's file system instead, with two processes, and report what a store there can guarantee.

    Exits with 1 if a problem has to be fixed. A missing package is reported but is not a failure.
    """
    config = session.config()
    checks = []
    for check in examine_directory(path) if path else examine(config, quick=quick):
        checks.append(check)
        if not session.as_json:
            _print(check)
    sound = all(check.status != "bad" for check in checks)
    if session.as_json:
        print_json({"ok": sound, "checks": [asdict(check) for check in checks]})
    return 0 if sound else 1


def examine(config: Config, *, quick: bool) -> Iterator[Check]:
    """Yield every check."""
    yield probes.check_interpreter()
    yield from probes.check_distributions()
    yield probes.check_gpu()
    if not quick:
        note("checking backends in a child process; --quick skips builds")
    yield from probes.check_backends(quick=quick)
    yield from probes.check_use_of_the_cache(config)
    yield from probes.check_store(config.root, readonly=config.readonly)
    yield from (probes.check_layer(root, config.trust) for root in config.lower)
    if config.remotes.urls:
        from trtcache_cli.remote_probe import examine_remotes

        yield from examine_remotes(config)
    yield from probes.check_signatures(config.root, config.trust)
    yield probes.check_temporary_directory()
    has_torch = distribution_version(probes.DISTRIBUTIONS["torch"]) is not None
    if not quick and has_torch:
        note("trying key aliases and direct mode in a child process; --quick skips this")
        yield from probes.check_fast_paths(direct=config.direct)


def _print(check: Check) -> None:
    if not on_terminal():
        print_tsv([(check.name, check.status, check.found, check.advice)])
        return
    status = click.style(check.status.ljust(7), fg=_COLOURS[check.status])
    click.echo(f"{check.name.ljust(22)} {status} {check.found}")
    if check.advice:
        click.echo(f"{'':30} -> {check.advice}")

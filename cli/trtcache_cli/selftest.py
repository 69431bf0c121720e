"""``trtcache selftest``: test a backend on this machine end to end."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from trtcache.config.environment import is_installed
from trtcache.config.units import format_duration
from trtcache_cli.backend_name import BackendName
from trtcache_cli.output import console, note, on_terminal, print_json, print_tsv, printable, working
from trtcache_cli.probes import describe_death
from trtcache_cli.selftest_result import (
    FAILED,
    HEADER,
    NOT_RUN,
    OK,
    STEPS,
    StepResult,
    facts_of,
    report,
    summary,
    without_paths,
)
from trtcache_cli.session import environment_of_child, examples

PROCESSES = (("environment", "build"), ("hit", "run", "refit"), ("damage",), ("version",))
"""Steps that share a process: a crash affects only the later steps of its own process."""

_COLOURS = {OK: "green", FAILED: "red", NOT_RUN: "yellow"}
_LIMIT_S = 600.0


class SelfTestError(click.ClickException):
    """Torch is not installed."""

    exit_code = 6


@click.command(
    epilog=examples(
        "trtcache selftest --backend aot_inductor",
        "trtcache selftest --backend tensorrt_rtx --json",
        "trtcache selftest --backend aot_inductor --device cuda > report.md",
    )
)
@click.option(
    "--backend", type=BackendName(takes_auto=False), required=True, help="The backend to test (trtcache backends)."
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="The model's device; by default the backend chooses."
)
@click.option(
    "--step", "steps", type=click.Choice(list(STEPS)), multiple=True, help="Only this step, after a build. Repeatable."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Work in this new or empty directory and keep it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def selftest(backend: str, device: str | None, steps: tuple[str, ...], keep: Path | None, as_json: bool) -> int:
    """Build, hit, run, refit and damage a small model's engine, and print a report for an issue.

    It takes under three minutes, in a new cache directory. Steps that need an unavailable GPU are skipped and reported
    as not run. Exits with 1 if a step failed, and with 6 if the backend is not installed.
    """
    device = _default_device(backend) if device is None else device
    results = []
    with _folder(keep) as folder:
        for result in results_of(backend, device, folder, {*steps, "environment", "build"} if steps else {*STEPS}):
            results.append(result)
            if not as_json and not on_terminal():
                print_tsv([result.row])
    ok = all(result.status != FAILED for result in results)
    text = report(backend, results)
    if as_json:
        written = [result.document() for result in results]
        head = {"ok": ok, "backend": backend, "device": device, "facts": facts_of(results)}
        print_json({**head, "steps": written, "report": text})
        return 0 if ok else 1
    if on_terminal():
        _print_table(results)
        click.echo(f"\n{summary(results)}. To paste into an issue:\n")
    else:
        click.echo()
    click.echo(text, nl=False)
    return 0 if ok else 1


def _default_device(backend: str) -> str:
    """Return the device of a backend's test.

    Raises:
        BackendUnavailableError: the backend is not installed.
    """
    if not is_installed("torch"):
        raise SelfTestError(f"{backend} needs torch: pip install 'trtcache[torch]'")
    from trtcache.backends import registry  # imports torch

    return registry.load_backend(backend).selftest().device


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="trtcache-selftest-") as made:
            yield Path(made)
        return
    folder = keep.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.UsageError(f"--keep {keep}: it is not empty, and this test damages cache entries")
    yield folder
    note(f"the directory is kept: trtcache ls --cache-dir {folder / 'cache'}")


def results_of(backend: str, device: str, folder: Path, wanted: set[str]) -> Iterator[StepResult]:
    """Yield the result of each requested step as it ends; without an engine the later ones are not run."""
    without = ""
    for group in PROCESSES:
        steps = [step for step in group if step in wanted]
        if without:
            yield from (StepResult(step, NOT_RUN, without) for step in steps)
            continue
        for result in run_process(backend, device, folder, steps) if steps else ():
            yield result
            if result.step == "build" and result.status != OK:
                without = result.saw if result.status == NOT_RUN else "there is no engine"


def run_process(
    backend: str,
    device: str,
    folder: Path,
    steps: Sequence[str],
    *,
    command: Sequence[str] = (sys.executable, "-m", "trtcache_cli.selftest_process"),
    limit_s: float = _LIMIT_S,
) -> Iterator[StepResult]:
    """Yield the results of steps that share a process. If it dies, its remaining steps have failed."""
    request = {"steps": steps, "backend": backend, "device": device, "root": str(folder / "cache")}
    log = (folder / f"{steps[0]}.log").open("w+b")
    child = subprocess.Popen(  # noqa: S603  # this Python, this package
        [*command, json.dumps(request)],
        env=environment_of_child(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        child.kill()

    watch = threading.Timer(limit_s, stop)
    watch.start()
    left = list(steps)
    try:
        assert child.stdout is not None  # noqa: S101  # it has a pipe
        while left:
            with working(f"{left[0]}: {STEPS[left[0]]}"):
                result = _next_result(child.stdout)
            if result is None:
                break
            left.remove(result.step)
            yield result
    finally:
        watch.cancel()
        if left:
            child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]  # as above
    if left:
        was_late = timed_out.is_set()
        why = f"no answer after {format_duration(limit_s)}" if was_late else _last_words(child.returncode, log)
        outcome = without_paths(f"its process ended: {why}", folder)
        yield from (StepResult(step, FAILED, outcome) for step in left)
    log.close()


def _next_result(lines: Iterable[bytes]) -> StepResult | None:
    """Read lines until a step has ended; other output of libraries is skipped."""
    for line in lines:
        if line.startswith(b'{"end"'):
            return StepResult(**json.loads(line)["end"])
    return None


def _last_words(code: int, log: BinaryIO) -> str:
    if code < 0:
        return "; ".join(filter(None, describe_death(code)))
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"


def _print_table(results: Sequence[StepResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for name in HEADER:
        table.add_column(name, justify="right" if name == "SECONDS" else "left", no_wrap=name in HEADER[:3])
    for result in results:
        step, status, *rest = result.row
        table.add_row(step, Text(status, style=_COLOURS[status]), *(Text(printable(cell)) for cell in rest))
    console().print(table)

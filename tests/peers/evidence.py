"""Write ``docs/evidence/peers.md``: ``python -m tests.peers.evidence FOLDER``, or ``make peers PEERS=FOLDER``.

FOLDER has checkouts named ``pytorch`` and ``TensorRT``; a suite whose files are not there is left out and named.
Results are kept in ``--state`` as they come: the same command goes on where an earlier one ended. After a change of
trtcache, ``--fresh`` runs everything again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.peers.document import DOCUMENT, figures, markdown, wrong_calls
from tests.peers.suites import SUITES, records

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def run(name: str, arguments: argparse.Namespace, log: Path, ends_s: float) -> bool:
    """Run a suite in as many processes as it takes, and say whether all its tests have a result.

    A test that takes longer than ``--timeout`` or ends its process has that as its result.
    """
    while True:
        began = len(_done(log))
        with (log.parent / f"{name}.output").open("ab") as output:
            child = subprocess.Popen(_command(name, arguments, log), cwd=ROOT, stdout=output, stderr=output)
        try:
            is_late = _watch(name, child, log, arguments.timeout, ends_s)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        found = records(log)
        if found and "end" in found[-1]:
            return True
        if time.monotonic() > ends_s:
            return False
        stuck = found[-1] if found and "step" in found[-1] else None
        if stuck is not None:
            why = f"longer than {arguments.timeout} s" if is_late else f"exit status {child.returncode}"
            _append(
                log,
                {
                    "id": stuck["id"],
                    "outcome": "timeout" if is_late else "died",
                    "reason": f"{why}, in {stuck['step']}",
                },
            )
        elif len(_done(log)) == began:
            sys.stderr.write(f"\n{name}: no progress; see {log.parent / f'{name}.output'}\n")
            return False


def _command(name: str, arguments: argparse.Namespace, log: Path) -> list[str]:
    options = {"--backend": arguments.backend, "--sample": arguments.sample, "--sizes": arguments.sizes, "--log": log}
    options |= {"--match": arguments.match} if arguments.match else {}
    flags = [str(part) for option in options.items() for part in option]
    return [sys.executable, "-W", "ignore", "-m", "tests.peers.suites", name, str(arguments.folder.resolve()), *flags]


def _watch(name: str, child: subprocess.Popen[bytes], log: Path, timeout_s: float, ends_s: float) -> bool:
    """Wait for a process while tests begin; say whether it was one test's time that ran out."""
    current, since = None, time.monotonic()
    while child.poll() is None:
        time.sleep(0.5)
        found = records(log)
        last = found[-1].get("id") if found else None
        if last != current:
            current, since = last, time.monotonic()
        total = next((record["count"] for record in reversed(found) if "count" in record), "?")
        sys.stderr.write(f"\r{name}: {len(_done(log))} of {total} {str(current).rpartition('::')[2][:60]}\033[K")
        if time.monotonic() > ends_s:
            return False
        if found and "step" in found[-1] and time.monotonic() - since > timeout_s:
            return True
    return False


def _done(log: Path) -> set[str]:
    return {record["id"] for record in records(log) if "outcome" in record}


def _append(log: Path, record: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _environment() -> None:
    """Hide the user's settings and cache from the processes; one thread each, since models are small."""
    for name in list(os.environ):
        if name.startswith(("TRTCACHE_", "TORCHINDUCTOR_")):
            del os.environ[name]
    paths = [str(ROOT), str(ROOT / "cli"), str(ROOT / "migrations"), os.environ.get("PYTHONPATH", "")]
    os.environ |= {"OMP_NUM_THREADS": "1", "TRTCACHE_DIRECT": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def commits(folder: Path) -> dict[str, str]:
    """Return the commit of each checkout; ``COMMIT`` beside the files says it where there is no git directory."""
    found = {}
    for name in ("pytorch", "TensorRT"):
        path = folder / name
        if (path / "COMMIT").exists():
            found[name] = (path / "COMMIT").read_text().strip()
        elif (path / ".git").exists():
            command = ["git", "-C", str(path), "rev-parse", "HEAD"]
            found[name] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found


def _arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("folder", type=Path, help="has pytorch and TensorRT checkouts")
    parser.add_argument("--only", default="", help=f"some of {','.join(SUITES)}")
    parser.add_argument("--sample", type=float, default=1.0, help="this part of the tests, always the same ones")
    parser.add_argument("--match", default="", help="only tests with this in their names")
    parser.add_argument("--sizes", type=int, default=10, help="the most calls with other inputs for each program")
    parser.add_argument(
        "--backend", default="interpreter", help="interpreter (default) or aot_inductor, 10-30 s a program"
    )
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one test")
    parser.add_argument("--minutes", type=float, default=90.0, help="then end; the same command goes on")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "peers", help="where results are kept")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="write the document there")
    return parser.parse_args(argv)


def main() -> None:
    """Run the suites, write the document if all is there, and fail if an answer was wrong."""
    arguments = _arguments()
    _environment()
    state: Path = arguments.state / f"{arguments.backend}-{arguments.sample:g}-{arguments.sizes}"
    state.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + 60 * arguments.minutes
    names = arguments.only.split(",") if arguments.only else list(SUITES)
    results, missing, unfinished = {}, [], []
    for name in names:
        if lacking := [one for one in SUITES[name].files if not (arguments.folder / one).exists()]:
            missing.append(f"{SUITES[name].title} (no {', '.join(lacking)})")
            continue
        log = state / f"{name}.jsonl"
        if arguments.fresh:
            log.unlink(missing_ok=True)
        if not run(name, arguments, log, ends_s):
            unfinished.append(name)
        results[name] = [record for record in records(log) if "outcome" in record]
    sys.stderr.write("\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    text = markdown(results, missing, unfinished, commits(arguments.folder), arguments)
    print(figures(results))  # noqa: T201  # the report of a command
    if (
        not (missing or unfinished or arguments.only or arguments.match or arguments.sample < 1)
        or arguments.document != DOCUMENT
    ):
        arguments.document.write_text(text)
    for line in [*missing, *(f"not finished: {name}" for name in unfinished)]:
        sys.stderr.write(f"{line}\n")
    if wrong := wrong_calls(results):
        sys.exit("\n".join(["wrong:", *wrong]))


if __name__ == "__main__":
    main()

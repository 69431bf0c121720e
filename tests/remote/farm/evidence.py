"""Write ``docs/evidence/remote.md``: ``python -m tests.remote.farm.evidence [--only latencies,faults,...]``.

Figures are kept in ``evidence.json`` in the folder of the servers' programs, so that parts can be measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.documents import ROOT
from tests.remote.farm import faults, measures
from tests.remote.farm.servers import FARM, SERVERS, MissingServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.remote.farm.servers import Server

Figures = dict[str, Any]

PAGE = ROOT / "docs" / "evidence" / "remote.md"
LATENCY_ROUNDS, FAULT_ROUNDS = 40, 2


def _latencies() -> Figures:
    def measure(server: Server, folder: Path) -> Figures:
        return dict(measures.latencies(server, folder, LATENCY_ROUNDS))

    return {name: _on(name, measure) for name in ("ceph", "nginx")}


def _requests() -> Figures:
    return {"ceph": _on("ceph", lambda server, folder: dict(measures.requests(server, folder)))}


def _large() -> Figures:
    return {"ceph": _on("ceph", lambda server, folder: dict(measures.large(server, folder)))}


def _sync() -> Figures:
    return {"ceph": _on("ceph", lambda server, folder: dict(measures.sync(server, folder)))}


def _faults() -> Figures:
    def measure(server: Server, folder: Path) -> Figures:
        with measures.hosts_of(server, folder) as hosts:
            found = faults.measure(hosts, server.port, folder, FAULT_ROUNDS)
        return {"|".join(case): [[asdict(a), asdict(b), n] for a, b, n in rows] for case, rows in found.items()}

    return _on("ceph", measure)


def _tests() -> Figures:
    """Run the tests that print what they tried or measured, and keep those lines."""
    chosen = "random_faults or killed or planted or ctrl_c or forked_child"
    command = [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", "-k", chosen, "tests/remote"]
    environ = {**os.environ, "TRTCACHE_TORTURE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    what = r"\d+ look-ups|uploads killed|downloads killed|Ctrl-C|a look-up in a forked child|[^:\n]+: \d+ bytes read"
    pattern = rf"^(?:{what}).*$"
    lines = re.findall(pattern, done.stdout, re.MULTILINE)
    attacks = [sys.executable, "-m", "attacks", "hostile_remote", "hostile_bucket"]
    tried = subprocess.run(attacks, cwd=ROOT, capture_output=True, text=True, check=False)
    lines += tried.stdout.splitlines()
    failed = {"tests": done.stdout.strip().splitlines()[-1]} if done.returncode else {}
    failed |= {"attacks": tried.stderr[-500:] or tried.stdout[-500:]} if tried.returncode else {}
    return {"lines": lines, "failed": failed}


def _install() -> Figures:
    return dict(measures.install())


PARTS: dict[str, Callable[[], Figures]] = {
    "latencies": _latencies,
    "faults": _faults,
    "requests": _requests,
    "tests": _tests,
    "large": _large,
    "sync": _sync,
    "install": _install,
}


def _on(name: str, action: Callable[[Server, Path], Figures]) -> Figures:
    """Measure on a server; where there is none, say why."""
    with tempfile.TemporaryDirectory(prefix="trtcache-farm-") as folder:
        (place := Path(folder) / "server").mkdir()
        (work := Path(folder) / "work").mkdir()
        try:
            with SERVERS[name](place) as server:
                load = f"{os.getloadavg()[0]:.0f}"
                return {"server": f"{server.name} {server.version}", "load": load, "found": action(server, work)}
        except MissingServerError as error:
            sys.stderr.write(f"{name.upper()} WAS NOT MEASURED: {error}\n")
            return {"missing": str(error)}


def page(figures: Figures) -> str:
    """Return the page."""
    parts = (_latencies_text, _requests_text, _faults_text, _tests_text, _rest)
    return "\n".join([_INTRODUCTION, *(line for part in parts for line in part(figures))])


_INTRODUCTION = """\
# Tests of the remote tier

Written by `make farm`: servers and clients on one machine with 2 shared cores, over loopback; medians, with the least
and the most in brackets. Other work on the machine moves all times; what is compared took turns.
"""

_LATENCIES = """\
## A hit and a miss

A hit ends with the verified entry, flushed to the disk and read back from the cache directory. The raw GET is
obstore's, of the same object, into memory; the next column adds writing and flushing a plain file. Then the entry is a
local hit; the last column is one of an entry that was built, by a cache without a remote. They took turns.
"""

_REQUESTS = """\
## Requests of a compile

A model with one layer and AOTInductor, each in a new process that may upload, counted by a proxy before {server}.
The bound is 3 GETs, no HEAD and no listing.

| compile | result | GET | HEAD | listings | PUT | kept |
|---|---|---|---|---|---|---|
"""

_FAULTS = """\
## Thirteen faults

{server} behind a proxy that fails on purpose, each case in a new process. *Get* is three look-ups of 150 kB that the
remote has, three of what it has not, and a hundred more of these; *put* is three builds of 150 kB and a hundred of
1 kB; *exit* is the end of a process with three uploads and `TRTCACHE_REMOTE_FLUSH={flush_s}`. The time of the same
process without a remote is subtracted, which builds all three (0.5 to 1.5 s), and takes 10 to 40 ms for a hundred
look-ups, several seconds for a hundred builds, and 0.1 to 0.5 s for its exit. {rounds} rounds, with a load of {load} on
the machine; {wrong}

The bounds are 2.5 s for the first ones and 50 ms for the next hundred. A hundred misses take less than 50 ms only where
nothing is asked any more: without a fault each of them is a request, as the first row shows. So it is with *1 MB/s*,
which does not slow an answer without an object, and with *every other 503*, where each answer is right at the second
request. The breaker stays closed there, because a remote that answers saves builds. With *delay* the hits are worth
their 0.7 s, as a build takes 2 s; three misses of 0.7 s in a row open it.
"""

_FAULTS_HEADER = ("fault", "get: first three", "three misses", "next hundred", "requests", "put: all", "exit")

_TESTS = """\
As printed by tests with the numbers of `make torture`, on moto's S3 server. Of the look-ups through random faults
none gave a wrong byte, raised, or left a temporary file; a killed upload left its object whole or absent, and a
killed download only whole entries; nothing that was planted in the bucket was used.
"""

_BOUNDS_S = {"ceph": (0.008, 0.025, 1.2, 0.002), "nginx": (0.008, 0.025, 1.2, 0.001)}
"""Server -> what a hit of each size may take, and a miss."""


def _latencies_text(figures: Figures) -> Iterator[str]:
    yield _LATENCIES
    for name, bounds in _BOUNDS_S.items():
        part = figures.get("latencies", {}).get(name, {})
        if "found" not in part:
            yield f"{name} was not measured: {part.get('missing', 'not run')}\n"
            continue
        found = part["found"]
        yield f"With a load of {part['load']} on the machine:\n"
        names = ("raw GET", "and flushed", "hit", "of raw", "bound", "kept", "then a local hit", "of a built entry")
        rows = [(part["server"], *names)]
        for label, bound_s in zip(measures.SIZES, bounds, strict=False):
            raw, hit = found[f"{label} raw"], found[f"{label} hit"]
            flushed = [a + b for a, b in zip(raw, found[f"{label} flushed"], strict=True)]
            ratio = f"{statistics.median(hit) / statistics.median(raw):.1f}x"
            local = (_ms(found[f"{label} local"]), _ms(found[f"{label} built"]))
            rows.append((label, _ms(raw), _ms(flushed), _ms(hit), ratio, *_kept(hit, bound_s), *local))
        miss, again = found["miss"], _ms(found["miss again"])
        rows.append(("a miss", f"HEAD {_ms(found['raw miss'])}", "", _ms(miss), "", *_kept(miss, bounds[3]), again, ""))
        yield from _table(*rows)


def _requests_text(figures: Figures) -> Iterator[str]:
    part = figures.get("requests", {}).get("ceph", {})
    if "found" not in part:
        yield f"## Requests of a compile\n\nNot measured: {part.get('missing', 'not run')}\n"
        return
    yield _REQUESTS.format(server=part["server"]).rstrip()
    for what, done in part["found"].items():
        get, head, listed, put = (done["requests"].get(method, 0) for method in ("GET", "HEAD", "LIST", "PUT"))
        kept = "yes" if get <= 3 and not head and not listed else "**no**"
        yield f"| {what} | {done['origin']} | {get} | {head} | {listed} | {put} | {kept} |"
    yield ""


def _faults_text(figures: Figures) -> Iterator[str]:
    part = figures.get("faults", {})
    if "found" not in part:
        yield f"## Thirteen faults\n\nNot measured: {part.get('missing', 'not run')}\n"
        return
    found, rows = part["found"], [_FAULTS_HEADER]
    wrong = [case for case, rounds in found.items() for cost, _, _ in rounds if cost["code"] or not cost["right"]]
    said = f"failed: {', '.join(wrong)}." if wrong else "every process ended with 0 and with the right bytes."
    rounds = len(next(iter(found.values())))
    yield _FAULTS.format(load=part["load"], server=part["server"], flush_s=faults.FLUSH_S, rounds=rounds, wrong=said)
    for fault in faults.ALL_FAULTS:
        get, put, end = (found[f"{fault}|{what}"] for what in ("get", "put", "exit"))
        count = statistics.median(count for _, _, count in get)
        put_s = _more(put, "first_s") + _more(put, "next_s")
        times = (
            f"{_more(get, 'first_s'):+.2f} s",
            f"{_more(get, 'missed_s'):+.2f} s",
            f"{1e3 * _more(get, 'next_s'):+.0f} ms",
            f"{count:.0f}",
            f"{put_s:+.2f} s",
        )
        rows.append((fault, *times, f"{_more(end, 'exit_s'):+.2f} s"))
    yield from _table(*rows)


def _more(rounds: list[list[Any]], name: str) -> float:
    """Return the median of how much longer it took than without a remote."""
    return statistics.median(float(cost[name] - without[name]) for cost, without, _ in rounds)


def _tests_text(figures: Figures) -> Iterator[str]:
    part = figures.get("tests", {"failed": {"tests": "not run"}})
    # What the page says of all of them is said only if each of them passed.
    yield "## What was tried\n"
    yield from (
        f"**FAILED** {what}: {why}\n"
        for what, why in part.get("failed", {"tests": "of an older form; run again"}).items()
    )
    if part.get("failed") == {}:
        yield _TESTS
    yield from (f"- {line}" for line in part.get("lines", ["not run"]))
    yield ""


def _rest(figures: Figures) -> Iterator[str]:
    yield "## Memory and size\n"
    large = figures.get("large", {}).get("ceph", {})
    for what, label in (("up", "uploaded to"), ("down", "fetched from")) if "found" in large else ():
        found = large["found"][what]
        size = f"{found['extra_bytes'] / 2**20:.0f} MiB more memory, in {found['took_s']:.0f} s; bound 64 MB"
        yield f"- An entry of 3 GB was {label} {large['server']} with {size}."
    sync = figures.get("sync", {}).get("ceph", {})
    for what, bound in (("up", 4), ("down", 2)) if "found" in sync else ():
        took_s, raw_s = (sync["found"][f"{what}{raw}"] for raw in ("", " raw"))
        size = f"{measures.SYNCED:,} entries of {measures.SYNCED_BYTES / 1000:.0f} kB"
        yield (
            f"- `trtcache sync` of {size} {what}, 32 at once, the whole command, with {sync['server']} and a load of "
            f"{sync['load']}: {took_s:.2f} s, obstore alone {raw_s:.2f}; bound {bound}."
        )
    if found := figures.get("install"):
        size = f"{found['bytes'] / 1e6:.0f} MB in {found['distributions']:.0f} distributions"
        yield f"- The extra `remote` adds {size}; bound 20 MB and 3.\n"
    yield "Not run: Google Cloud Storage (there is no server of it to install), Amazon's S3 and Azure themselves.\n"


def _ms(values: list[float]) -> str:
    middle, least, most = (1e3 * value for value in (statistics.median(values), min(values), max(values)))
    return f"{middle:.3g} ms ({least:.3g} to {most:.3g})"


def _kept(values: list[float], bound_s: float) -> tuple[str, str]:
    found_s = statistics.median(values)
    return f"{1e3 * bound_s:.0f} ms", "yes" if found_s <= bound_s else f"**no**: {found_s / bound_s:.1f} times"


def _table(*rows: tuple[str, ...]) -> Iterator[str]:
    header, *rest = rows
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rest)
    yield ""


def main() -> None:
    """Measure all parts or some, and write the page from all that was ever measured here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PARTS))
    chosen = parser.parse_args().only
    kept = FARM / "evidence.json"
    figures: Figures = json.loads(kept.read_text()) if kept.exists() else {}
    for name in filter(None, chosen.split(",")):
        sys.stderr.write(f"{name}: {time.strftime('%H:%M:%S')}, load {os.getloadavg()[0]:.1f}\n")
        figures[name] = PARTS[name]()
        kept.write_text(json.dumps(figures, indent=1))
    PAGE.write_text(page(figures))


if __name__ == "__main__":
    main()

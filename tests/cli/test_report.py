"""``trtcache report``: its figures as text, as JSON and as a page."""

from __future__ import annotations

import json
import sys
from datetime import date, timedelta
from functools import partial
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from trtcache.config.environment import Config
from trtcache.digests import CacheKey
from trtcache.store.events import EventCount, EventLog
from trtcache.store.files import Folders
from trtcache.target import resolve_target
from trtcache_cli.report_history import LONGEST_DAYS, history, look_ups
from trtcache_cli.report_matrix import read_heat_map

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.disk import DiskStore

    from .conftest import Result

HOSTILE = "<script>alert(1)</script>\"'>&\u202egnp.exe"
VOID = {"meta", "link", "rect", "path", "br"}


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects the names and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag."""
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Require that it closes the last open one."""
        if tag not in VOID:
            assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text += data


def _log(store: DiskStore, ago_s: float) -> EventLog:
    t_ns = store.clock_ns() - int(ago_s * 1e9)
    return EventLog(Folders(store.root, shared=False), clock_ns=partial(int, t_ns), writable=True)


@pytest.fixture
def filled(store: DiskStore, put: Callable[..., str]) -> DiskStore:
    """Two engines of one model and one of a hostile name, a companion, a hit and three misses."""
    target = resolve_target("native", device="cpu").document()
    key = CacheKey.of("aot_inductor", {"target": target})
    store.put(key, {"artifact": b"x" * 50_000}, kind="aot_inductor", name="bert", build_s=100.0)
    put(1, kind="tensorrt", name="bert"), put(2, kind="tensorrt", name=HOSTILE), put(3, kind="alias", name="bert")
    _log(store, 0).append("hit", kind="tensorrt", saved_s=90.0)
    for reason in ("absent", "absent", HOSTILE):
        _log(store, 3 * 86400).append("miss", reason=reason, kind="tensorrt")
    return store


def test_the_figures_are_those_of_stats(run: Callable[..., Result], filled: DiskStore) -> None:
    """The same entries, hits, misses and sizes, in JSON and as text."""
    found, stats = run("report", "--json").json, run("stats", "--json").json
    for name in ("entries", "file_bytes", "size_bytes", "pinned", "hits", "misses", "hit_rate", "saved_s"):
        assert found[name] == stats[name], name
    for kind, sums in found["kinds"].items():
        assert sums.items() <= stats["kinds"][kind].items()
    assert (found["entries"], found["engines"], found["hits"], found["build_s"]) == (3, 3, 1, 103.0)
    assert found["entries"] == run("ls", "--json").json["total"]
    assert found["hidden"] == stats["hidden"]
    assert found["models"]["bert"]["entries"] == 3
    (label, sums), (none, _) = sorted(found["targets"].items(), reverse=True)
    assert (label.startswith("cpu, linux-"), sums["entries"]) == (True, 1) or none.startswith("cpu, linux-")
    assert [entry["name"] for entry in found["slowest"]] == ["bert", HOSTILE, "bert"]
    assert len(found["unused"]) == 3
    assert found["unused_for"]["under a day"]["entries"] == 4
    pairs = dict(run("report").rows)
    assert pairs["cache directory"] == str(filled.root)
    assert pairs["hits"].startswith("1 (25.0% of look-ups) since 20")
    assert pairs["  absent"] == "2"
    assert pairs["unused"].startswith("3 engines of ")


def test_the_history_has_each_day_up_to_today(run: Callable[..., Result], filled: DiskStore) -> None:
    """Days without a look-up are there, and those with one have it by reason."""
    found = run("report", "--json").json["history"]
    assert (found["unit"], found["outside"], len(found["periods"])) == ("day", 0, 4)
    assert found["periods"][0]["misses"] == {"absent": 2, HOSTILE: 1}
    assert [period["hits"] for period in found["periods"]] == [0, 0, 0, 1]
    assert found["periods"][3]["saved_s"] == 90.0
    assert filled.events.logs()


def test_a_long_history_is_by_week_and_odd_days_are_outside() -> None:
    """What is older than a year, of the future or of no day is counted, and does not stretch the chart."""
    today = date(2026, 11, 23)
    days = [today - timedelta(n) for n in (0, 100, LONGEST_DAYS - 1, LONGEST_DAYS, -1)]
    texts = [day.isoformat() for day in days] + ["", "soon", "9999-99-99"]
    counts = {(text, "miss", "absent", ""): EventCount(1) for text in texts}
    found = history(look_ups(counts), today)
    assert (found.unit, found.outside) == ("week", 5)
    assert len(found.periods) <= 54
    assert sum(period.misses.total() for period in found.periods) == 3
    assert (found.periods[0].first.weekday(), found.periods[-1].last) == (0, today)
    for before, after in zip(found.periods, found.periods[1:], strict=False):
        assert after.first - before.last == timedelta(1)


def test_the_events_of_a_remote_are_its_own() -> None:
    """By its whole URL; what its hits saved is counted apart from the time of their requests."""
    counts = {
        ("2026-11-23", "remote_hit", "s3://b/main", "test"): EventCount(2, 0.1),
        ("2026-11-23", "remote_hit:saved", "s3://b/main", "test"): EventCount(2, 60.0),
        ("2026-11-23", "remote_miss", "s3://b/main absent", "test"): EventCount(3),
        ("2026-11-23", "remote_miss", "s3://b/main2 absent", "test"): EventCount(9),
        ("2026-11-23", "hit", "", "test"): EventCount(9, 9.0),
    }
    (period,) = history(look_ups(counts, "s3://b/main"), date(2026, 11, 23)).periods
    assert (period.hits, period.misses, period.saved_s) == (2, {"absent": 3}, 60.0)


@pytest.mark.usefixtures("filled")
def test_the_page_is_one_file_with_all_names_escaped(run: Callable[..., Result], tmp_path: Path) -> None:
    """No script, no handler, no address of anything else; tags are closed."""
    path = tmp_path / "report.html"
    done = run("report", "--html", path)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"{path}: 3 entries, ")
    page = path.read_text(encoding="utf-8")
    tags = Tags(page)
    assert "<script>alert(1)</script>\"'>&\\u202egnp.exe" in tags.text
    assert "\u202e" not in page
    assert "script" not in tags.names
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("src", "srcset", "xlink:href")]
    assert "default-src 'none'" in page
    for name in ("Hit rate", "Look-ups over time", "What could go", "Slowest builds", "Not used since"):
        assert name in tags.text
    assert len(page) < 60_000


def test_an_empty_cache_has_a_page(run: Callable[..., Result], tmp_path: Path, root: Path) -> None:
    """And it is not created."""
    assert run("report", "--html", tmp_path / "report.html").code == 0
    assert "No look-up has been counted yet" in Tags((tmp_path / "report.html").read_text()).text
    assert not root.exists()


def test_a_directory_can_be_named(run: Callable[..., Result], filled: DiskStore, tmp_path: Path) -> None:
    """As with --cache-dir; one that does not exist is an error."""
    filled.root.rename(tmp_path / "other")
    assert run("report", tmp_path / "other", "--json").json["entries"] == 3
    missing = run("report", tmp_path / "missing")
    assert (missing.code, missing.out) == (3, "")


def test_a_terminal_gets_tables(terminal: Callable[..., Result], filled: DiskStore) -> None:
    """With what would be evicted, by the command that does it."""
    out = terminal("report").out
    assert str(filled.root) in out
    for text in ("KIND", "MODEL", "TARGET", "SLOWEST", "prune --unused-for 30d", "tensorrt"):
        assert text in out


def test_the_page_needs_jinja2(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it, and the text needs none."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = run("report", "--html", tmp_path / "report.html")
    assert (done.code, "pip install 'trtcache[report]'" in done.err) == (2, True)
    assert run("report").code == 0


@pytest.mark.usefixtures("filled")
def test_a_matrix_is_a_heat_map(
    run: Callable[..., Result], file: Path, interpreter: str, tmp_path: Path, store: DiskStore
) -> None:
    """Hits, missing cells and failed ones; looking counts no hit and uses no entry."""
    matrix, outcomes = tmp_path / "matrix.toml", tmp_path / "warm.json"
    matrix.write_text(
        f'[[cells]]\nbackend = "{interpreter}"\nfile = ["affine.pt2", "<b>.pt2"]\n'
        f'[[cells]]\nbackend = "{interpreter}"\nfile = "zoo:nothing"\n'
    )
    assert run("build", file, "--backend", interpreter).code == 0
    outcome = {"cell": 2, "file": "zoo:nothing", "outcome": "failed", "why": "it has no model"}
    built = {"cell": 0, "file": "elsewhere/affine.pt2", "outcome": "built", "why": None}  # the matrix by another path
    outcomes.write_text(json.dumps({"cells": [built, outcome]}))
    before = run("stats", "--json").json["hits"], {stored.digest: stored.used_ns for stored in store.scan()}
    assert run("report", "--matrix", matrix, "--json").json["matrix"]["unknown"] == 1
    found = run("report", "--matrix", matrix, "--outcomes", outcomes, "--json", "--html", tmp_path / "r.html").json
    states = [cell["state"] for cell in found["matrix"]["cells"]]
    assert states == ["hit", "failed", "failed"]
    assert found["matrix"]["cells"][2]["reason"] == "it has no model"
    assert before == (run("stats", "--json").json["hits"], {stored.digest: stored.used_ns for stored in store.scan()})
    tags = Tags((tmp_path / "r.html").read_text())
    assert "<b>.pt2" in tags.text
    assert "it has no model" in tags.text
    assert run("report", "--outcomes", outcomes).code == 2
    other = '{"cells": [{"cell": 0, "file": "elsewhere/other.pt2", "outcome": "built", "why": ""}]}'
    for wrong in ('{"cells": [{"cell": 7, "file": "x", "outcome": "failed", "why": ""}]}', other, "[]", "{"):
        outcomes.write_text(wrong)
        done = run("report", "--matrix", matrix, "--outcomes", outcomes)
        assert (done.code, "--outcomes" in done.err) == (2, True), done


def test_a_listing_decides_of_a_known_key(
    run: Callable[..., Result], file: Path, interpreter: str, tmp_path: Path, store: DiskStore
) -> None:
    """Whether the engine is in the local cache too or only its alias."""
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(f'[[cells]]\nbackend = "{interpreter}"\nfile = "affine.pt2"\n')
    engine = run("build", file, "--backend", interpreter, "--json").json["key"]

    def state(listed: set[str]) -> str:
        config = Config.from_environ({"TRTCACHE_DIR": str(store.root)})
        return read_heat_map(config, matrix, None, listed).cells[0].state

    assert (state({engine}), state(set())) == ("hit", "missing")
    assert run("rm", engine).code == 0
    assert (state({engine}), state(set())) == ("hit", "missing")

"""``trtcache ls``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from crowd import crowded

from trtcache.store.contract import COMPANIONS, is_companion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.disk import DiskStore

    from .conftest import Result

CROWD = 10_000


def test_a_pipe_gets_tab_separated_lines(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Key, kind, name, bytes, build seconds, times of build and use, pinned; no header, no colour."""
    digest = put(3)
    ((key, kind, name, size, build_s, created_s, used_s, pinned),) = run("ls").rows
    assert (key, kind, name, build_s, pinned) == (digest, "test", "model 3", "3.000", "")
    assert int(size) > 4096
    assert abs(int(created_s) - time.time()) < 100 > abs(int(used_s) - time.time())


def test_json_has_every_field_and_the_total(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """A limit shortens the list and not the total."""
    put(1), put(2)
    found = run("ls", "--json", "--limit", 1).json
    assert found["total"] == 2
    assert [entry["name"] for entry in found["entries"]] == ["model 2"]
    assert found["entries"][0]["pinned"] is False


def test_quiet_prints_keys_for_other_commands(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """One full key on each line."""
    assert run("ls", "-q").out == ""
    digests = {put(1), put(2)}
    assert set(run("ls", "--quiet").out.split()) == digests


def test_filters_narrow(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """The option is repeatable and takes commas."""
    put(1, kind="aot_inductor", name="bert"), put(2, kind="aot_inductor", name="vit"), put(3, name="bert")
    assert [row[2] for row in run("ls", "-f", "kind=aot_inductor", "-f", "name~BER").rows] == ["bert"]
    assert len(run("ls", "--filter", "name~bert,build>2s").rows) == 1


def test_companions_are_listed_on_demand(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Engines, programs and unknown kinds are listed; memos and the like with --all, or by their kind or key."""
    engine, program, alias = put(1), put(2, kind="program"), put(3, kind="alias")
    for kind in sorted(COMPANIONS):
        put(4, kind=kind)
    assert set(run("ls", "-q").out.split()) == {engine, program}
    assert len(run("ls", "-q", "--all").rows) == len(run("ls", "-a").rows) == 3 + len(COMPANIONS)
    assert run("ls", "-q", "-f", f"key={alias}").out.split() == [alias]
    assert {row[1] for row in run("ls", "-f", "kind~ali").rows} == {"alias"}
    assert set(run("ls", "-q", "-f", "kind!=direct").out.split()) == {engine, program}


def test_what_is_not_listed_is_counted(
    run: Callable[..., Result], terminal: Callable[..., Result], put: Callable[..., str]
) -> None:
    """In JSON by kind, at a terminal in a line, and nowhere if there is nothing of the kind."""
    put(1)
    assert run("ls", "--json").json["hidden"] == {}
    assert "--all" not in terminal("ls").out
    put(2, kind="alias"), put(3, kind="alias"), put(4, kind="direct")
    found = run("ls", "--json").json
    assert (found["total"], found["hidden"]["alias"]["entries"], len(found["hidden"])) == (1, 2, 2)
    assert "1 entry of 4.12 kB; --all shows 3 more of 12.4 kB (2 alias, 1 direct)" in terminal("ls").out
    assert run("ls", "--json", "-a").json["hidden"] == {}


def test_a_companion_is_found_by_its_key(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Commands that take keys take those of every kind."""
    alias = put(1, kind="alias")
    assert run("show", alias[:8]).code == run("pin", alias[:8]).code == run("unpin", alias[:8]).code == 0
    assert run("rm", alias[:8]).code == 0
    assert not list(store.scan())


def test_kinds_of_companions_are_those_that_are_written() -> None:
    """Each is the kind that its module gives."""
    pytest.importorskip("torch")
    from trtcache.backends.tensorrt.tuning import RUNTIME_CACHE, TIMING_CACHE
    from trtcache.compiler.program_file import KIND
    from trtcache.frontends.direct import manifest
    from trtcache.keys.alias_key import KIND as ALIAS

    assert {ALIAS, "memo", manifest.KIND, manifest.REASON_KIND, RUNTIME_CACHE, TIMING_CACHE} == COMPANIONS
    assert not is_companion(KIND)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("name", ["a", "b", "c"]),
        ("size", ["c", "a", "b"]),
        ("build", ["b", "c", "a"]),
        ("kind", ["c", "b", "a"]),
        ("age", ["c", "b", "a"]),
        ("used", ["b", "c", "a"]),
    ],
)
def test_the_order_can_be_chosen(run: Callable[..., Result], store: DiskStore, sort: str, expected: list[str]) -> None:
    """Largest, longest and latest first, names by the alphabet; --reverse turns each round."""
    from trtcache.digests import CacheKey

    described = (("a", "z", 20, 1.0), ("b", "y", 10, 9.0), ("c", "x", 30, 5.0))
    for number, (name, kind, size, build_s) in enumerate(described):
        key = CacheKey.of(kind, {"n": number})
        store.put(key, {"artifact": os.urandom(size * 1000)}, kind=kind, name=name, build_s=build_s)
        used_ns = {"a": 1, "b": 3, "c": 2}[name] * 10**18
        os.utime(store.path(key.digest), ns=(used_ns, used_ns))
    assert [row[2] for row in run("ls", "--sort", sort).rows] == expected
    assert [row[2] for row in run("ls", "--sort", sort, "--reverse").rows] == expected[::-1]


def test_a_terminal_gets_a_table(terminal: Callable[..., Result], put: Callable[..., str]) -> None:
    """With a header, short keys, and readable sizes."""
    digest = put(3, name="[bold]")
    out = terminal("ls").out
    assert "KEY" in out
    assert digest[:16] in out
    assert digest not in out
    assert "[bold]" in out
    assert "kB" in out


def test_an_empty_store_says_so_at_a_terminal_only(run: Callable[..., Result], terminal: Callable[..., Result]) -> None:
    """A pipe gets nothing at all."""
    assert "no entries" in terminal("ls").out
    assert run("ls").out == ""


def test_looking_makes_nothing(run: Callable[..., Result], root: Path) -> None:
    """A cache that is not there yet is empty, and stays away."""
    assert (run("ls").code, run("stats").code, run("verify").code) == (0, 0, 0)
    assert not root.exists()


def test_tabs_and_line_ends_in_a_name_do_not_break_the_lines(
    run: Callable[..., Result], put: Callable[..., str]
) -> None:
    """A name is one field whatever is in it."""
    put(1, name="a\tb\nc")
    assert run("ls").rows[0][2] == "a\\tb\\nc"


def test_a_listing_imports_neither_torch_nor_sqlalchemy(
    program: Callable[..., Result], put: Callable[..., str]
) -> None:
    """Nor rich in a pipe: that is what makes it fast."""
    put(1)
    assert program("ls").code == 0
    found = program("ls", PYTHONVERBOSE="", PYTHONPROFILEIMPORTTIME="1").err
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in found.splitlines()}
    assert "click" in imported
    assert not imported & {"torch", "sqlalchemy", "alembic", "rich", "tensorrt", "numpy", "filelock"}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 10,000 entries without an index."""
    root = tmp_path_factory.mktemp("crowd") / "cache"
    crowded(root, CROWD)
    return root


@pytest.mark.slow
def test_ten_thousand_entries_are_all_listed(
    crowd: Path, program: Callable[..., Result], terminal: Callable[..., Result]
) -> None:
    """Each form has every entry that it should, also the first, which makes the lost index."""
    assert len(program("ls", "--cache-dir", crowd).rows) == CROWD
    for runner, args, lines in (
        (program, (), CROWD),
        (program, ("--json",), 1),
        (program, ("--quiet",), CROWD),
        (terminal, (), 202),
        (terminal, ("--limit", 0), CROWD + 1),
    ):
        assert len(runner("ls", "--cache-dir", crowd, *args).out.splitlines()) >= lines


@pytest.mark.slow
def test_a_terminal_shows_two_hundred_and_says_so(crowd: Path, terminal: Callable[..., Result]) -> None:
    """The rest is an option away, in plain text."""
    out = terminal("ls", "--cache-dir", crowd).out
    assert "200 of 10,000 entries; --limit 0 shows all" in out
    assert out.count("model-") == 200
    assert terminal("ls", "--cache-dir", crowd, "--limit", 0).out.count("model-") == CROWD

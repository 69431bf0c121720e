"""``trtcache show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.digests import CacheKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.store.disk import DiskStore

    from .conftest import Result


def test_a_prefix_is_enough(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """With or without b3:, the entry is described line by line."""
    digest = put(3)
    for prefix in (digest[:6], f"b3:{digest[:6]}", digest):
        pairs = {row[0]: row[1] for row in run("show", prefix).rows}
        assert pairs["key"] == digest
        assert pairs["name"] == "model 3"
        assert pairs["by host"] == "h"
        assert pairs["part n"] == "3"
        assert pairs["member artifact"].startswith("1 kB")


def test_json_has_the_whole_key_document(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Another program can make the key again from it."""
    digest = put(3)
    found = run("show", "--json", digest).json
    assert CacheKey.of_document(found["document"]).digest == found["key"] == digest
    assert found["members"][0]["name"] == "artifact"
    (entry,) = run("ls", "--json").json["entries"]
    assert {name: found[name] for name in entry} == {**entry, "members": found["members"]}
    assert (found["provenance"], found["build_s"], found["pinned"]) == ({"host": "h"}, 3.0, False)


def test_long_parts_are_cut_for_people(run: Callable[..., Result], store: DiskStore) -> None:
    """A graph of a megabyte does not flood the terminal, and the line refers to --json."""
    key = CacheKey.of("test", {"graph": "x" * 10_000})
    store.put(key, {"artifact": b""}, kind="test")
    assert "10,002 characters; --json has all" in run("show", key.digest).out


def test_parts_of_another_build_may_have_any_name(run: Callable[..., Result], store: DiskStore) -> None:
    """A part named like one of an exported program has no meaning in the key of another build."""
    for number, guards in enumerate(("on", 3, [1], [["a"]])):
        key = CacheKey.of("test", {"guards": guards, "inputs": 1, "number": number})
        store.put(key, {"artifact": b""}, kind="test")
        assert "part guards" in run("show", key.digest).out


def test_an_unknown_or_ambiguous_key_exits_with_5(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """The message has a remedy."""
    digests = [put(number) for number in range(17)]
    first = next(digest[0] for digest in digests if sum(other[0] == digest[0] for other in digests) > 1)
    ambiguous, unknown = run("show", first), run("show", "f" * 64)
    assert (ambiguous.code, unknown.code) == (5, 5)
    assert "use a longer prefix" in ambiguous.err
    assert "'trtcache ls --all' lists them" in unknown.err


def test_a_damaged_entry_exits_with_4(run: Callable[..., Result], put: Callable[..., str], store: DiskStore) -> None:
    """Showing does not repair."""
    digest = put(1)
    store.path(digest).write_bytes(b"junk")
    shown = run("show", digest)
    assert shown.code == 4
    assert "damaged (magic)" in shown.err

"""Look-ups in a remote: one request for a hit, one for a miss, none otherwise."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import fetch, left_behind
from trtcache.errors import BuildForbiddenError
from trtcache.remote import uploads
from trtcache.store.catalog import load_records

if TYPE_CHECKING:
    from tests.conftest import RunPython, StartPython
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy


def test_a_build_is_uploaded_and_a_hit_elsewhere(hosts: Hosts, proxy: FaultProxy) -> None:
    """A build is one miss and one upload; on another machine it is one GET, and then a hit of its directory."""
    built = hosts.publish(b"engine" * 1000)
    assert built.outcome == "built"
    assert [method for method, _ in proxy.requests] == ["GET", "PUT"]
    proxy.requests.clear()

    server = hosts.host("server", TRTCACHE_FORBID_BUILD="1")
    found = fetch(server, b"never")
    assert (found.outcome, found.origin, bytes(found.read())) == ("hit", "remote", b"engine" * 1000)
    assert found.path is not None
    assert [method for method, _ in proxy.requests] == ["GET"]

    again = fetch(hosts.host("server"))
    assert (again.outcome, again.origin) == ("hit", "")
    assert proxy.count() == 1
    assert not left_behind(hosts.folder)


def test_what_came_from_a_remote_is_byte_for_byte_what_was_uploaded(hosts: Hosts) -> None:
    """Signatures and padding included."""
    built = hosts.publish(bytes(range(256)) * 9000)
    found = fetch(hosts.host("server"))
    assert built.path is not None
    assert found.path is not None
    assert found.path.read_bytes() == built.path.read_bytes()


def test_a_miss_is_one_request_and_remembered_in_memory(hosts: Hosts, proxy: FaultProxy) -> None:
    """A second look-up asks nothing, and another cache asks again: nothing of it is on disk."""
    cache = hosts.host("a")
    key = cache.key({"n": 1}, kind="test")
    assert cache.get(key) is None
    assert cache.get(key) is None
    assert proxy.count("GET") == proxy.count() == 1
    assert hosts.host("a").get(key) is None
    assert proxy.count() == 2


def test_a_local_hit_asks_nothing_and_imports_nothing(hosts: Hosts, proxy: FaultProxy, run_python: RunPython) -> None:
    """A process that only hits does not import obstore, nor anything of the remote tier."""
    fetch(hosts.host("a", TRTCACHE_REMOTE=""))
    code = """
    import sys, trtcache
    entry = trtcache.Cache().get_or_build({"n": 0}, lambda: b"never", kind="test")
    print(entry.outcome, [name for name in sys.modules if "obstore" in name or "trtcache.remote" in name])
    """
    done = run_python(code, **hosts.variables("a"))
    assert done.stdout == "hit []\n", done.stderr
    assert proxy.count() == 0


def test_processes_of_a_host_ask_once(hosts: Hosts, proxy: FaultProxy, start_python: StartPython) -> None:
    """The remote is asked under the build lock, and the others find what the first has fetched."""
    hosts.publish(b"engine" * 50_000)
    proxy.requests.clear()
    proxy.fault, proxy.delay_s = "delay", 0.4
    code = """
    import trtcache
    entry = trtcache.Cache().get_or_build({"n": 0}, lambda: b"never", kind="test")
    print(entry.outcome, entry.origin)
    """
    processes = [start_python(code, **hosts.variables("a")) for _ in range(4)]
    outputs = sorted(process.communicate(timeout=60)[0] for process in processes)
    assert outputs == ["hit \n"] * 3 + ["hit remote\n"]
    assert proxy.count() == 1


def test_without_obstore_everything_is_built(hosts: Hosts, run_python: RunPython) -> None:
    """One warning says what to install; uploads wait in the outbox."""
    code = """
    import sys
    sys.modules["obstore"] = None
    import trtcache
    cache = trtcache.Cache()
    print([cache.get_or_build({"n": n}, lambda: b"", kind="test").outcome for n in range(2)], trtcache.flush(5))
    """
    done = run_python(code, **hosts.variables("a") | {"TRTCACHE_REMOTE": f"{hosts.url}&mode=write"})
    assert done.stdout == "['built', 'built'] 0\n", done.stderr
    assert done.stderr.count("pip install 'trtcache[remote]'") == 1


def test_a_hit_imports_no_sqlalchemy_and_is_listed(hosts: Hosts, run_python: RunPython) -> None:
    """A listing adds the row to the index."""
    entry = hosts.publish()
    code = """
    import sys, trtcache
    print(trtcache.Cache().get_or_build({"n": 0}, lambda: b"", kind="test").origin, "sqlalchemy" in sys.modules)
    """
    done = run_python(code, **hosts.variables("a"))
    assert done.stdout == "remote False\n", done.stderr
    store = hosts.host("a").store
    assert store is not None
    assert [record.digest for record in load_records(store)] == [entry.key.digest]


def test_what_is_fetched_stays_within_the_limits(hosts: Hosts) -> None:
    """As after a put: the oldest entries are pruned."""
    for n in range(6):
        hosts.publish(os.urandom(50_000), n)
    cache = hosts.host("a", TRTCACHE_MAX_ENTRIES="3")
    for n in range(6):
        assert fetch(cache, n=n).origin == "remote"
    assert len(list((hosts.folder / "a").rglob("*.trtc"))) <= 3


def test_opening_a_cache_asks_nothing(hosts: Hosts, proxy: FaultProxy) -> None:
    """There is no check at start-up."""
    hosts.writer()
    assert proxy.count() == 0


def test_a_forbidden_build_asks_the_remote_before_it_fails(hosts: Hosts, proxy: FaultProxy) -> None:
    """What may not be built may still be fetched; the error says what each remote answered."""
    cache = hosts.host("a", TRTCACHE_FORBID_BUILD="1")
    for _ in range(2):  # the second is remembered
        with pytest.raises(BuildForbiddenError, match=re.escape(f"a ({hosts.name}: absent)")):
            fetch(cache)
    assert proxy.count() == 1
    proxy.fault = "reset"
    with pytest.raises(BuildForbiddenError, match=re.escape(f"a ({hosts.name}: unreachable)")):
        fetch(cache, n=1)
    with pytest.raises(BuildForbiddenError, match=re.escape(f"a ({hosts.name}: breaker open)")):
        fetch(cache, n=2)
    with pytest.raises(
        BuildForbiddenError, match=r"TRTCACHE_RECACHE=1 requires a build of test key [0-9a-f]+ in [^ ]*$"
    ):
        fetch(hosts.host("a", TRTCACHE_FORBID_BUILD="1", TRTCACHE_RECACHE="1"))


def test_a_read_only_directory_uses_what_it_cannot_store(hosts: Hosts, proxy: FaultProxy) -> None:
    """The entry is used, from a file without a name, and nothing is written."""
    hosts.publish(b"content")
    fetch(hosts.host("a", TRTCACHE_REMOTE=""), n=5)
    found = fetch(hosts.host("a", TRTCACHE_READONLY="1"))
    assert (found.outcome, found.origin, found.path, bytes(found.read())) == ("hit", "remote", None, b"content")
    assert len(list((hosts.folder / "a").rglob("*.trtc"))) == 1


def test_without_signatures_entries_are_used_and_never_stored(hosts: Hosts) -> None:
    """A private store would vouch for them from then on."""
    hosts.publish(b"content")
    found = fetch(hosts.host("a", TRTCACHE_SIGNATURES="off"))
    assert (found.outcome, found.origin, found.path) == ("hit", "remote", None)
    assert not list((hosts.folder / "a").rglob("*.trtc"))


def test_without_a_trusted_key_nothing_is_asked(
    hosts: Hosts, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says what to do, and the build goes on."""
    with caplog.at_level(logging.WARNING, "trtcache.remote"):
        cache = hosts.host("a", TRTCACHE_TRUSTED_KEYS="")
        assert fetch(cache).outcome == "built"
        assert fetch(cache, n=1).outcome == "built"
    assert proxy.count() == 0
    assert [record.message for record in caplog.records if "trtcache trust add" in record.message] == [
        record.message for record in caplog.records
    ][:1]


def test_remotes_are_asked_in_their_order(hosts: Hosts, proxy: FaultProxy) -> None:
    """A miss of the first remote is remembered, and an entry from one remote is not uploaded to another."""
    hosts.publish(b"content")
    other = hosts.url.replace("?", "-pr?")
    found = fetch(hosts.host("a", TRTCACHE_REMOTE=f"{other}&mode=write {hosts.url}"))
    assert (found.outcome, found.origin) == ("hit", "remote")
    assert uploads.flush(5) == 0
    assert [path.split("/")[2][-3:] == "-pr" for method, path in proxy.requests if method == "GET"][-2:] == [
        True,
        False,
    ]
    assert proxy.count("PUT") == 1


def test_hits_and_misses_are_counted_by_remote(hosts: Hosts) -> None:
    """Events carry the URL without its parameters."""
    hosts.publish()
    cache = hosts.host("a")
    fetch(cache)
    fetch(cache, n=1)
    assert cache.store is not None
    place = hosts.url.partition("?")[0]
    events = [(event.event, event.reason) for event in cache.store.events.read() if event.event.startswith("remote")]
    assert events == [("remote_hit", place), ("remote_miss", f"{place} absent")]


def test_local_kinds_are_not_asked_for(hosts: Hosts, proxy: FaultProxy) -> None:
    """What was measured on a machine is for that machine."""
    cache = hosts.writer()
    assert cache.recall("timing_cache", {"n": 1}) is None
    cache.merge("timing_cache", {"n": 1}, lambda _: b"measured", saves_s=9.0)
    assert uploads.flush(5) == 0
    assert proxy.count() == 0


def test_obstore_is_imported_in_one_file_only() -> None:
    """So that another engine can take its place."""
    from tests.documents import ROOT

    users = [path.name for path in (ROOT / "trtcache").rglob("*.py") if "import obstore" in path.read_text()]
    assert users == ["bucket.py"]
    assert "obstore" in sys.modules

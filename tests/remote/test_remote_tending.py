"""``ls``, ``init``, ``verify``, ``prune`` and ``sync`` with the URL of a remote."""

from __future__ import annotations

import http.server
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import boto3
import click
import pytest

from tests.effort import SOON_S
from tests.pseudo_terminal import read_and_close
from tests.remote.conftest import fetch, free_port, put_object, report
from trtcache.config.environment import Config
from trtcache.config.remotes import RemoteUrl
from trtcache.remote import uploads
from trtcache.remote.entries import RemoteEntries
from trtcache.remote.tier import object_name
from trtcache.store.disk import DiskStore
from trtcache_cli.lifecycle import how_to_apply, lifecycle_rules
from trtcache_cli.places import PlaceType, UrlType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy
    from trtcache.store.contract import Entry


@pytest.fixture
def entries(hosts: Hosts) -> list[Entry]:
    """Three entries in the remote."""
    return [hosts.publish(bytes([n]) * 5000, n) for n in range(3)]


def put(moto: int, hosts: Hosts, name: str, content: bytes = b"x") -> None:
    """Put an object below the prefix, whatever its name is."""
    url = f"http://127.0.0.1:{moto}"
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
    bucket, _, prefix = hosts.path.removeprefix("/").partition("/")
    client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=content)


def remote_of(hosts: Hosts) -> RemoteEntries:
    """Open the remote as a command does."""
    config = Config.from_environ(hosts.variables("a"))
    return RemoteEntries(config.remotes.urls[0], config.remotes, config.trust)


def digests(found: list[Entry]) -> set[str]:
    """Return the digests of entries."""
    return {entry.key.digest for entry in found}


def test_ls_lists_with_one_request(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, entries: list[Entry]
) -> None:
    """Keys, sizes and ages from a listing, and one more for the pins; nothing is downloaded."""
    proxy.requests.clear()
    done = command("ls", hosts.name)  # the endpoint is that of TRTCACHE_REMOTE
    assert (done.code, {row[0] for row in done.rows}) == (0, digests(entries))
    assert len(proxy.requests) == 2
    assert all("list-type=2" in path for _, path in proxy.requests)
    listed = command("ls", "--json", hosts.name).json
    assert (listed["url"], listed["total"], listed["unreadable"]) == (hosts.name, 3, [])
    assert {entry["key"] for entry in listed["entries"]} == digests(entries)
    assert abs(listed["entries"][0]["uploaded_ns"] / 1e9 - time.time()) < 60
    assert len(command("ls", "--quiet", "--limit", "1", hosts.name).rows) == 1
    assert command("ls", hosts.url).out == done.out


def test_ls_long_reads_headers(
    command: Callable[..., Result], hosts: Hosts, moto: int, entries: list[Entry], keys: dict[str, tuple[str, Path]]
) -> None:
    """Kind, name, build time and signer; what cannot be read is listed apart."""
    damaged = "ab" + "0" * 62
    put(moto, hosts, object_name(damaged), b"no entry" * 20)
    put(moto, hosts, object_name("ac" + "0" * 62), b"")
    listed = command("ls", "--long", "--json", hosts.name).json
    assert {(entry["kind"], entry["signer"], entry["untrusted"]) for entry in listed["entries"]} == {
        ("test", "ci", None)
    }
    assert {entry["file_bytes"] for entry in listed["entries"]} == {
        entry.path.stat().st_size for entry in entries if entry.path
    }
    assert [bad["reason"] for bad in listed["unreadable"]] == ["corrupt:magic", "corrupt:magic"]
    done = command("ls", "-l", hosts.name)
    assert [row[1] for row in done.rows] == ["test"] * 3
    assert "2 entries cannot be read" in done.err
    stranger = command("ls", "--json", "--filter", "kind=test", hosts.name, TRTCACHE_TRUSTED_KEYS=keys["stranger"][0])
    assert {entry["untrusted"] for entry in stranger.json["entries"]} == {"unknown-key"}
    assert command("ls", "--filter", "kind=other", hosts.name).out == ""


def test_a_long_header_takes_a_second_request(command: Callable[..., Result], hosts: Hosts) -> None:
    """Where it does not fit into the first 64 KiB."""
    cache = hosts.writer()
    cache.get_or_build({"graph": "x" * 300_000}, lambda: b"engine", kind="test", name="long")
    assert len(cache.layers.disks[0].path(next(cache.layers.disks[0].scan()).digest).read_bytes()) > 300_000
    assert command("push", TRTCACHE_DIR=str(hosts.folder / "ci"), TRTCACHE_REMOTE=f"{hosts.url}&mode=write").code == 0
    (entry,) = command("ls", "--long", "--json", hosts.name).json["entries"]
    assert entry["name"] == "long"


def test_ls_on_a_terminal_has_a_heading(
    command: Callable[..., Result], hosts: Hosts, entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a sum below."""
    monkeypatch.setattr("trtcache_cli.remote_ls.on_terminal", lambda: True)
    done = command("ls", "--long", "--reverse", hosts.name)
    assert done.out.splitlines()[0].split() == [
        *("KEY", "KIND", "NAME", "SIZE", "BUILD", "AGE", "UPLOADED", "PIN", "SIGNER")
    ]
    assert "3 entries of" in done.err
    assert command("ls", hosts.name).out.splitlines()[0].split() == ["KEY", "SIZE", "AGE", "PIN"]


@pytest.mark.parametrize(
    "name",
    [
        *("entries/v1/../../../etc/passwd", "entries/v1/./x", "entries//x", "entries/v1/ab/../x", "entries/v1/ab//x"),
        *("entries/v1/ab/../credential", "entries/v1/ab/../NoSuchBucket"),  # words of other errors
    ],
)
def test_names_that_are_no_paths_are_ignored(
    command: Callable[..., Result], hosts: Hosts, moto: int, entries: list[Entry], name: str, tmp_path: Path
) -> None:
    """By a listing and by a sync; nothing is written outside of the target."""
    for other in (name, "entries/v1/ab/short.trtc", f"entries/v1/ab/{'c' * 64}.trtc", "entries/v1/readme"):
        put(moto, hosts, other)
    assert {row[0] for row in command("ls", hosts.name).rows} == digests(entries)
    target = tmp_path / "deep" / "target"
    done = command("sync", "--json", hosts.name, target)
    assert (done.code, {entry["key"] for entry in done.json["copied"]}) == (0, digests(entries))
    assert {path.name for path in tmp_path.rglob("*.trtc") if "hosts" not in path.parts} == {
        f"{digest}.trtc" for digest in digests(entries)
    }


def test_a_name_that_hides_others_is_an_error(command: Callable[..., Result], hosts: Hosts, moto: int) -> None:
    """The library cannot list such a folder; the message has the name, so that it can be removed."""
    put(moto, hosts, f"entries/v1/ab/{'ab' * 32}/../x")
    done = command("ls", hosts.name)
    assert done.code == 3
    assert "/../x" in done.err


def test_init_prepares_a_prefix(command: Callable[..., Result], hosts: Hosts) -> None:
    """Once; the rules for the bucket are printed, and an upload into it works."""
    done = command("init", "--json", hosts.name)
    assert (done.code, done.json["created"]) == (0, True)
    assert done.json["lifecycle"]["Rules"][0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert not command("init", "--json", hosts.name).json["created"]
    plain = command("init", hosts.name)
    assert json.loads(plain.out) == done.json["lifecycle"]
    assert "put-bucket-lifecycle-configuration --bucket engines" in plain.err
    assert command("init", "--shared", "--group", "0", hosts.name).code == 2


@pytest.mark.parametrize(("content", "code"), [(b'{"format": 2}', 3), (b"<html>", 4), (b"{}" * 5000, 4)])
def test_another_layout_is_refused(
    command: Callable[..., Result], hosts: Hosts, moto: int, content: bytes, code: int, tmp_path: Path
) -> None:
    """By init and by sync."""
    put_object(moto, f"{hosts.path}/trtcache-remote.json", content)
    assert command("init", hosts.name).code == code
    assert command("sync", hosts.name, tmp_path / "target").code == code
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("url", "rule", "how"),
    [
        ("s3://b/p?endpoint=https://s3.site", "Rules", "aws --endpoint-url https://s3.site s3api"),
        ("gs://b/p", "rule", "gcloud storage buckets update gs://b"),
        ("az://b/p?account=acc", "rules", "--account-name acc"),
        ("https://host/p", "", "find FOLDER/entries"),
    ],
)
def test_each_provider_has_rules_of_its_own(url: str, rule: str, how: str) -> None:
    """A web folder has none."""
    parsed = RemoteUrl.parse(url)
    rules = lifecycle_rules(parsed)
    assert (rules is None) if not rule else (rules is not None and "p/entries/" in json.dumps(rules[rule]))
    assert how in how_to_apply(parsed)


def test_verify_downloads_everything(
    command: Callable[..., Result], hosts: Hosts, moto: int, entries: list[Entry], keys: dict[str, tuple[str, Path]]
) -> None:
    """Damage exits with 4; an untrusted signature is reported, too."""
    assert command("verify", hosts.name).code == 0
    path = entries[0].path
    assert path is not None
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    put(moto, hosts, object_name(entries[0].key.digest), bytes(raw))
    put(moto, hosts, object_name(entries[1].key.digest), path.read_bytes())
    done = command("verify", "--json", hosts.name)
    assert done.code == 4
    assert {(bad["key"], bad["reason"], bad["layer"]) for bad in done.json["damaged"]} == {
        (entries[0].key.digest, "member", hosts.name),
        (entries[1].key.digest, "key", hosts.name),
    }
    assert done.json["checked"] == 3
    third = entries[2].key.digest
    for prefix in (third[:9], third[:9].upper(), f"b3:{third}", f"B3:{third.upper()}"):
        assert command("verify", hosts.name, prefix).code == 0
    assert command("verify", hosts.name, "ffffff").code == 5
    assert command("verify", "--repair", hosts.name).code == 2
    stranger = command("verify", "--json", hosts.name, third, TRTCACHE_TRUSTED_KEYS=keys["stranger"][0])
    assert (stranger.code, stranger.json["untrusted"][0]["reason"]) == (0, "untrusted:unknown-key")


def test_prune_keeps_pins_and_the_last_hour(
    command: Callable[..., Result], hosts: Hosts, entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pinned stays, and so does what was just uploaded; a dry run removes nothing."""
    prune = ("prune", hosts.name, "--json", "-y", "--unused", "30d")
    assert command(*prune[:-1], "0s").json["evict"] == []
    later = time.time_ns() + 40 * 86400 * 10**9
    monkeypatch.setattr("trtcache_cli.prune.time.time_ns", lambda: later)
    pinned = entries[0].key.digest
    remote_of(hosts).pin(pinned)
    dry = command(*prune, "--dry-run").json
    assert ({one["key"] for one in dry["evict"]}, dry["kept"]) == (digests(entries[1:]), 1)
    assert dry["freed_bytes"] == dry["bytes_before"] - dry["bytes_after"] > 0
    assert len(command("ls", hosts.name).rows) == 3
    assert command("prune", hosts.name, "--max-size", "1kB").code == 2  # no terminal to confirm
    assert command("prune", hosts.name, "--max-size", "1TB", "--dry-run").out == ""
    assert "to remove: 2 entries, " in command("prune", hosts.name, "--max-entries", "1", "--dry-run").err
    assert command(*prune).json["freed_bytes"] > 2 * 4096
    assert [row[0] for row in command("ls", hosts.name).rows] == [pinned]
    assert [row[3] for row in command("ls", hosts.name).rows] == ["pinned"]


def test_prune_of_a_remote_needs_a_limit(command: Callable[..., Result], hosts: Hosts) -> None:
    """TRTCACHE_MAX_SIZE is that of the directory."""
    assert command("prune", hosts.name, TRTCACHE_MAX_SIZE="1kB").code == 2
    assert command("prune", hosts.name, "--stale-toolchain").code == 2
    assert command("prune", hosts.name, "--filter", "kind=test", "--dry-run").code == 0


def test_prune_by_a_filter_names_entries_with_unreadable_headers(
    command: Callable[..., Result], hosts: Hosts, moto: int, entries: list[Entry]
) -> None:
    """Whether they match is unknown, so they stay."""
    put(moto, hosts, object_name("ab" + "0" * 62), b"no entry" * 20)
    done = command("prune", hosts.name, "--filter", "kind=test", "--dry-run")
    assert f"kept, because the header cannot be read: 1 entry; see trtcache verify {hosts.name}\n" in done.err
    assert "kept, because uploaded in the last hour: 3 entries" in done.err


def test_prune_with_a_filter_evicts_what_was_uploaded_first(
    command: Callable[..., Result], hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without one, although the headers have the build times."""
    cache = hosts.writer()
    keys = [cache.key({"n": n}, kind="test") for n in range(2)]
    for key, build_s in zip(keys, (300.0, 1.0), strict=True):
        cache.keep(key, b"engine", build_s=build_s)
        assert uploads.flush(60) == 0
        time.sleep(1.1)  # the server's times are whole seconds
    later = time.time_ns() + 2 * 3600 * 10**9
    monkeypatch.setattr("trtcache_cli.prune.time.time_ns", lambda: later)
    prune = ("prune", hosts.name, "--max-entries", "1", "--dry-run", "--json")
    for filters in ((), ("--filter", "kind=test")):
        assert [one["key"] for one in command(*prune, *filters).json["evict"]] == [keys[0].digest]


def test_what_is_pinned_meanwhile_is_kept(hosts: Hosts, entries: list[Entry]) -> None:
    """Pins are read again before anything is deleted."""
    remote = remote_of(hosts)
    remote.pin(entries[0].key.digest)
    assert remote.remove(digests(entries)) == digests(entries[1:])


def test_what_is_pinned_while_prune_asks_is_not_called_evicted(
    command: Callable[..., Result], hosts: Hosts, entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted as kept."""
    pinned, later = entries[0].key.digest, time.time_ns() + 2 * 3600 * 10**9
    monkeypatch.setattr("trtcache_cli.prune.time.time_ns", lambda: later)
    monkeypatch.setattr("trtcache_cli.removal.confirm", lambda *_args, **_options: remote_of(hosts).pin(pinned))
    done = command("prune", hosts.name, "--max-entries", "0", "--json").json
    assert ({one["key"] for one in done["evict"]}, done["kept"]) == (digests(entries[1:]), 1)


def test_sync_copies_both_ways(command: Callable[..., Result], hosts: Hosts, tmp_path: Path) -> None:
    """Byte for byte, with pins; a second time there is nothing to do."""
    source = hosts.host("source", TRTCACHE_REMOTE="")
    made = [fetch(source, bytes([n]) * 5000, n) for n in range(3)]
    store = source.store
    assert store is not None
    store.pin(made[0].key.digest)
    look = command("sync", "--dry-run", "--json", store.root, hosts.name)
    assert (look.json["destination"].partition("?")[0], len(look.json["copied"])) == (hosts.name, 3)
    up = command("sync", "--pins", "--json", store.root, hosts.name)
    assert (up.code, len(up.json["copied"]), up.json["pinned"]) == (0, 3, [made[0].key.digest])
    assert {entry["name"] for entry in up.json["copied"]} == {None}
    assert "0 entries of 0 B copied, 3 already present" in command("sync", store.root, hosts.name).err

    target = tmp_path / "target"
    dry = command("sync", "--dry-run", "--json", hosts.name, target).json
    assert ({entry["kind"] for entry in dry["copied"]}, target.exists()) == ({"test"}, False)
    down = command("sync", "--pins", "--json", hosts.name, target)
    assert (down.code, len(down.json["copied"])) == (0, 3)
    assert [entry["pinned"] for entry in down.json["copied"]].count(True) == 1
    there = DiskStore.open(target)
    assert there.pins() == {made[0].key.digest}
    assert all(there.path(digest).read_bytes() == store.path(digest).read_bytes() for digest in digests(made))
    assert command("ls", "--json", "--cache-dir", target).json["total"] == 3
    assert "3 already present" in command("sync", hosts.name, target).err


def test_sync_between_two_prefixes(command: Callable[..., Result], hosts: Hosts, entries: list[Entry]) -> None:
    """As for a migration, with a filter; the same URL twice is an error."""
    name, _, rest = hosts.url.partition("?")
    other = f"{name}-copy?{rest}"
    first = entries[0].key.digest
    done = command("sync", "--json", "--filter", f"key={first}", hosts.url, other)
    assert (done.code, [entry["key"] for entry in done.json["copied"]]) == (0, [first])
    assert [row[0] for row in command("ls", other).rows] == [first]
    assert command("sync", hosts.url, hosts.name).code == 2
    assert command("sync", hosts.url).code == 2


def test_sync_refuses_what_is_not_signed(
    command: Callable[..., Result], hosts: Hosts, moto: int, entries: list[Entry], tmp_path: Path
) -> None:
    """From a remote into a directory and back, with the reason; without a trusted key nothing is begun."""
    unsigned = hosts.host("unsigned", TRTCACHE_SIGNING_KEY="", TRTCACHE_REMOTE="")
    entry = fetch(unsigned, b"unsigned", 7)
    assert entry.path is not None
    put(moto, hosts, object_name(entry.key.digest), entry.path.read_bytes())
    raw = bytearray(entries[0].path.read_bytes() if entries[0].path else b"")
    raw[-1] ^= 1
    put(moto, hosts, object_name(entries[0].key.digest), bytes(raw))
    target = tmp_path / "target"
    down = command("sync", "--json", hosts.name, target)
    assert (down.code, len(down.json["copied"])) == (4, 2)
    assert {one["key"]: one["reason"] for one in down.json["refused"]} == {
        entry.key.digest: "untrusted:unsigned",
        entries[0].key.digest: "corrupt:member",
    }
    assert [path for path in target.rglob("*") if path.name.startswith(".tmp-")] == []
    off = command("sync", "--json", hosts.name, tmp_path / "off", TRTCACHE_SIGNATURES="off")
    assert entry.key.digest in {one["key"] for one in off.json["refused"]}
    up = command("sync", "--json", hosts.folder / "unsigned", f"{hosts.name}-up")
    assert (up.code, up.json["refused"][0]["reason"]) == (4, "untrusted:unsigned")
    nobody = command("sync", hosts.name, target, TRTCACHE_TRUSTED_KEYS="")
    assert (nobody.code, "trtcache trust add" in nobody.err) == (3, True)


def test_a_remote_that_fails_ends_a_sync(
    command: Callable[..., Result], hosts: Hosts, entries: list[Entry], tmp_path: Path
) -> None:
    """With one error, and not with one for each entry."""
    closed = hosts.url.replace(hosts.url.rpartition(":")[2], str(free_port()))
    for args in (("ls", closed), ("verify", closed), ("sync", closed, tmp_path / "b"), ("sync", hosts.url, closed)):
        done = command(*args)
        assert (done.code, done.err.count("trtcache: error")) == (3, 1)
        assert "unreachable" in done.err
    missing = command("ls", hosts.url.replace("engines", "no-such-bucket", 1))
    assert (missing.code, missing.err.endswith("(no-bucket); create it, or correct the URL (TRTCACHE_REMOTE)\n")) == (
        3,
        True,
    )


def test_a_listing_that_is_denied_says_what_it_needs(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy
) -> None:
    """As a look-up that is denied does."""
    proxy.fault = "403"
    done = command("ls", hosts.name)
    assert (done.code, "(denied); check the key or the role; reading needs s3:GetObject" in done.err) == (3, True)


@pytest.fixture
def web() -> Iterator[str]:
    """A web folder that cannot list."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/cache"
    server.shutdown()
    server.server_close()


def test_a_web_folder_that_cannot_list_is_one_clear_error(
    command: Callable[..., Result], web: str, tmp_path: Path
) -> None:
    """Of each command that needs a listing."""
    for args in (("ls", web), ("verify", web), ("prune", web, "--unused", "1d"), ("sync", web, tmp_path / "target")):
        done = command(*args)
        assert (done.code, done.err.count("\n")) == (3, 1)
        assert "does not list" in done.err


def test_arguments_for_directories_are_refused(command: Callable[..., Result], hosts: Hosts) -> None:
    """And a URL that is none."""
    for args in (("ls", "--building", hosts.name), ("ls", "--long"), ("ls", "ftp://x/y"), ("init", "s3://u:p@x/y")):
        assert command(*args).code == 2
    assert "; a directory is given with --cache-dir" in command("ls", hosts.folder).err
    assert command("ls", "s3://u:secret@bucket/x").err.count("secret") == 0


def test_shells_complete_configured_remotes(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the beginning of the URL; with nothing typed, a place can be a directory, too."""
    monkeypatch.setenv("TRTCACHE_REMOTE", hosts.url)
    context = click.Context(click.Command("ls"))
    parameter = click.Argument(["url"])
    for kind in (UrlType(), PlaceType()):
        assert [item.value for item in kind.shell_complete(context, parameter, "s3://eng")] == [hosts.name]
    assert [item.type for item in PlaceType().shell_complete(context, parameter, "/srv")] == ["dir"]
    assert [item.type for item in PlaceType().shell_complete(context, parameter, "")] == ["plain", "dir"]
    monkeypatch.setenv("TRTCACHE_REMOTE", "nonsense")
    assert UrlType().shell_complete(context, parameter, "") == []


def test_many_entries_are_synced_at_once(command: Callable[..., Result], hosts: Hosts, tmp_path: Path) -> None:
    """A hundred of 100 kB, up and down; the times are reported."""
    source = hosts.host("many", TRTCACHE_REMOTE="")
    for n in range(100):
        fetch(source, bytes([n]) * 50_000 + n.to_bytes(2, "big") * 25_000, n)
    began_s = time.monotonic()
    assert command("sync", hosts.folder / "many", hosts.name).code == 0
    up_s = time.monotonic() - began_s
    assert command("sync", hosts.name, tmp_path / "target").code == 0
    report(f"100 entries: up {up_s:.2f} s, down {time.monotonic() - began_s - up_s:.2f} s")
    assert sum(1 for _ in DiskStore.open(tmp_path / "target").scan()) == 100


@pytest.mark.parametrize("args", [("ls", "{url}"), ("verify", "{url}"), ("sync", "{url}", "{root}/target")])
def test_ctrl_c_ends_a_command_at_once(hosts: Hosts, proxy: FaultProxy, tmp_path: Path, args: tuple[str, ...]) -> None:
    """While the server hangs."""
    proxy.fault = "hang"
    words = [word.format(url=hosts.url, root=tmp_path) for word in args]
    variables = {**os.environ, **hosts.variables("a")}
    with subprocess.Popen([sys.executable, "-m", "trtcache_cli", *words], env=variables, stderr=-1) as process:
        while not proxy.requests:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        began_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        took_s = time.monotonic() - began_s
    report(f"{args[0]}: ended {took_s:.2f} s after Ctrl-C")
    assert took_s < SOON_S


def test_a_terminal_shows_bytes_and_rates(hosts: Hosts, entries: list[Entry], tmp_path: Path) -> None:
    """On standard error; none in a pipe."""
    command = [sys.executable, "-m", "trtcache_cli", "sync", hosts.url, str(tmp_path / "target")]
    variables = {**os.environ, **hosts.variables("a"), "TERM": "xterm", "COLUMNS": "120"}
    ours, theirs = pty.openpty()
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    os.close(theirs)
    shown = read_and_close(ours)
    assert "copying" in shown
    assert "/s" in shown
    piped = subprocess.run([*command[:-1], str(tmp_path / "b")], env=variables, capture_output=True, check=True)
    assert b"copying" not in piped.stderr
    assert len(entries) == 3


@pytest.mark.parametrize("args", [("ls", "--long"), ("verify",), ("prune", "--unused", "1d")])
def test_a_terminal_shows_that_a_remote_is_read(hosts: Hosts, entries: list[Entry], args: tuple[str, ...]) -> None:
    """One that takes long to answer; nothing in a pipe."""
    command = [sys.executable, "-m", "trtcache_cli", *args, hosts.url]
    variables = {**os.environ, **hosts.variables("a"), "TERM": "xterm", "COLUMNS": "120"}
    ours, theirs = pty.openpty()
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    os.close(theirs)
    word = "reading headers" if "--long" in args else "listing"
    assert word in read_and_close(ours)
    piped = subprocess.run(command, env=variables, capture_output=True, check=True)
    assert word.encode() not in piped.stderr
    assert len(entries) == 3


def test_the_rules_keep_an_entry_for_its_lifetime() -> None:
    """Half of it is when an entry in use is uploaded again."""
    rules = [lifecycle_rules(RemoteUrl.parse(f"s3://b/p?lifetime={days}d")) for days in (30, 365)]
    assert [rule["Rules"][0]["Expiration"] for rule in rules if rule] == [{"Days": 90}, {"Days": 365}]

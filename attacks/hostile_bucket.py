"""An attacker who may write to a bucket, against look-ups, claims and the commands that list it.

The bucket is a small S3 server on loopback that accepts every name and keeps every condition. Each victim is a child
process of its own, which is watched.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from attacks.poisoning import EVIL, block_of, with_block
from attacks.stage import MAIN, PULL, Stage, Succeeded, engine_of, file_of, key_of
from attacks.victim import prepare_victim, run_victim
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.config.signing_keys import SecretKey, Trust
from trtcache.errors import CorruptBlobError, FormatVersionError, RemoteError, StoreError
from trtcache.store.disk import DiskStore
from trtcache.store.format import PRELUDE_BYTES, parse_prelude
from trtcache.store.signatures import sign
from trtcache.store.sync import plan_sync

if TYPE_CHECKING:
    from trtcache.remote.entries import RemoteEntries
    from trtcache.store.contract import Entry

MOST_S = 8.0
MOST_GROWTH_BYTES = 384 << 20
LONGEST_TEXT = 2000

_PREFIX = "main"
_LARGE_HEADERS = 40
_ESCAPES = "\x1b]0;owned\x07\n2026 CRITICAL\u202e"
_LEFT = SecretKey("left", b"l" * 32)
_TRUST = Trust(None, (MAIN.public,), None)


def attack(folder: Path) -> str:
    """Plant objects, names, headers, claims and a layout file, and have a victim come by."""
    # What children need is imported here, once; nothing of the remote tier is, which does not outlive a fork.
    Cache(folder / "warm", remote=[]).get_or_build_key(key_of(1), lambda: b"")
    stage, secret = Stage.set(folder / "stage"), folder / "main.secret"
    MAIN.write(secret)
    good = stage.put(stage.main(), 1).read_bytes()
    other = stage.put(stage.main(), 2).read_bytes()
    evil = stage.put(stage.open(PULL, PULL, MAIN), 3, EVIL).read_bytes()
    left = stage.put(stage.open(_LEFT, _LEFT, MAIN), 1, EVIL).read_bytes()
    entries = {_name(1): good, _name(2): other, _name(3): evil}
    attempts = {name: Attempt({_name(1): raw}, _look_up) for name, raw in _objects(good, other, evil, left).items()}
    for name, names in _NAMES.items():
        attempts[name] = Attempt({**entries, **{f"{_PREFIX}/{planted}": b"x" for planted in names}}, _list)
    for name, raw in _headers(good).items():
        attempts[name] = Attempt({_name(1): raw}, _describe)
    many = file_of(json.dumps({**_document(good), "provenance": {f"{n}": "x" for n in range(500_000)}}).encode())
    numbered = (f"{number:064x}" for number in range(_LARGE_HEADERS))
    attempts["many large headers"] = Attempt(dict.fromkeys(map(_object_name, numbered), many), _describe)
    claim = f"{_PREFIX}/claims/{key_of(1).digest}."
    for name, raw in _CLAIMS.items():
        attempts[f"a claim, {name}"] = Attempt({f"{claim}0": raw}, partial(_wait, secret))
    old = {f"{claim}{number}": _CLAIMS["for ever"] for number in range(30)}
    attempts["an old claim of each generation"] = Attempt(old, partial(_wait, secret), age_s=1e6)
    for name, raw in _MARKERS.items():
        attempts[f"a layout file, {name}"] = Attempt({f"{_PREFIX}/trtcache-remote.json": raw}, _check_layout)
    for number, (name, attempt) in enumerate(attempts.items()):
        _try(folder / f"{number}", name, attempt)
    return (
        f"{len(attempts)} attempts: nothing of it was used or left a file, and each took less than {MOST_S:.0f} s and "
        f"{MOST_GROWTH_BYTES >> 20} MiB"
    )


@dataclass(frozen=True)
class Attempt:
    """Objects of a bucket, put there ``age_s`` ago, and what a victim does, given a folder and the bucket's URL."""

    objects: dict[str, bytes]
    victim: Callable[[Path, str], None]
    age_s: float = 0.0


def _objects(good: bytes, other: bytes, evil: bytes, left: bytes) -> dict[str, bytes]:
    """Return objects to be put where the entry of key 1 belongs."""
    prelude = parse_prelude(good[:PRELUDE_BYTES], len(good), "")
    header, members = good[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes], good[4096:]
    gap = bytearray(good)
    gap[prelude.members_from] = 1
    evil_header = evil[PRELUDE_BYTES : PRELUDE_BYTES + parse_prelude(evil[:PRELUDE_BYTES], len(evil), "").header_bytes]
    forged = MAIN.public.raw.hex().encode() + block_of(evil)[64:]
    return {
        "bytes between members": bytes(gap),
        "bytes after the end": good + b"x",
        "nothing after the header": good[: prelude.members_from],
        "the entry of another key": other,
        "an entry by a key whose time is over": left,
        "a right header with other members": good[:4096] + evil[4096:],
        "another format of the same header": file_of(header, block_of(good), members, version=2),
        "a signature for another kind of file": with_block(evil, sign(MAIN, 1, evil_header, b"trtcache bundle\n")),
        "a forged signature beside a right one": with_block(evil, b"".join(sorted([block_of(evil), forged]))),
        "a signature twice": with_block(good, block_of(good) * 2),
        "64 KiB of signatures": file_of(header, (block_of(good) * 400)[: 64 << 10], members),
        "a signature of zeros": with_block(evil, MAIN.public.raw.hex().encode() + b":" + b"0" * 128 + b"\n"),
        "a page of zeros": bytes(1 << 20),
    }


_NAMES = {
    "names that lead out": ["entries/v1/../../x", "entries/v1/ab/../../../../etc/passwd", "pins/../../x"],
    "names with two slashes": ["entries/v1//x", "entries/v1/ab//x.trtc", "pins//x"],
    "names with escapes": [f"entries/v1/ab/{_ESCAPES}", f"entries/v1/{_ESCAPES}/x", f"pins/{_ESCAPES}"],
    "names with other digits": ["entries/v1/ab/" + "\uff11" * 64 + ".trtc", "entries/v1/ab/" + "AB" * 32 + ".trtc"],
    "names in the wrong folder": ["entries/v1/zz/" + "ab" * 32 + ".trtc", "entries/v1/cd/" + "ab" * 32 + ".trtc"],
    "names like an entry": ["entries/v1/ab/" + "ab" * 32 + ".trtc/x", "entries/v1/ab/" + "ab" * 32 + ".trtc\n"],
    "a long name": ["entries/v1/ab/" + "x" * 1_000_000],
    "a long name that leads out": ["entries/v1/../" + "x" * 1_000_000],
    "many names": [f"entries/v1/{n:02x}/{n:02x}{n:062x}" for n in range(256)] * 40,
}


def _document(good: bytes) -> dict[str, Any]:
    prelude = parse_prelude(good[:PRELUDE_BYTES], len(good), "")
    document: dict[str, Any] = json.loads(good[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes])
    return document


def _headers(good: bytes) -> dict[str, bytes]:
    """Return files without a signature, whose headers are to be shown or to be complained about."""
    document = _document(good)
    (member,) = document["members"]
    changed: dict[str, dict[str, Any]] = {
        "a header with escapes": {"name": _ESCAPES * 1000, "kind": _ESCAPES},
        "a member with a long name": {"members": [{**member, "name": _ESCAPES * 10_000}]},
        "a member with many fields": {"members": [{**member, **{f"{n}{_ESCAPES}": 1 for n in range(20_000)}}]},
        "a member with a long digest": {"members": [{**member, "digest": _ESCAPES * 10_000}]},
        "a member of a petabyte": {"members": [{**member, "stored_bytes": 1 << 50, "size_bytes": 1 << 50}]},
        "a negative time": {"created_ns": -1, "build_s": -1.0},
    }
    members = good[4096:]
    return {
        name: file_of(json.dumps({**document, **change}).encode(), b"", members) for name, change in changed.items()
    }


_CLAIMS = {
    "for ever": json.dumps({"token": "x", "host": "h", "pid": 1, "kind": "test", "name": "n"}).encode(),
    "with escapes": json.dumps({"token": "x", "host": _ESCAPES * 50, "pid": 1, "kind": _ESCAPES, "name": "n"}).encode(),
    "deep": b"[" * 4000,
    "not text": b"\xff\xfe\x1b[31m" * 500,
    "of a large number": json.dumps({"token": "x", "host": "h", "pid": 10**4000, "started_ns": -1}).encode(),
    "large": b"x" * (32 << 20),
}

_MARKERS = {
    "of another format": b'{"format": 2}',
    "of no format": b"[1]",
    "deep": b"[" * 4000,
    "with escapes": json.dumps({"format": _ESCAPES}).encode(),
    "of a large number": b'{"format": 1' + b"0" * 4000 + b"}",
    "large": b" " * (64 << 20),
}


def _look_up(folder: Path, url: str) -> None:
    """Ask for entry 1 on a host that trusts ``main``, and trusted another until some time ago."""
    _expect_own(_cache(folder, url).get_or_build_key(key_of(1), lambda: engine_of(1)))


def _list(folder: Path, url: str) -> None:
    """List, copy and describe a bucket with entries, of which ``main`` signed 1 and 2."""
    remote, target = _remote(url), DiskStore.open(folder / "target", trust=_TRUST)
    try:
        found = {stored.digest for stored in remote.scan()}
        remote.pins()
        plan_sync([remote], target).execute()
        remote.records(headers=True)
    except RemoteError as error:
        _check_texts([str(error)])
        return
    if found != {key_of(number).digest for number in (1, 2, 3)}:
        raise Succeeded(f"a listing has {sorted(found)}")
    if {stored.digest for stored in target.scan()} != {key_of(1).digest, key_of(2).digest}:
        raise Succeeded("something was copied that main had not signed, or not all of it")


def _describe(_: Path, url: str) -> None:
    """List entries that nobody signed with their headers, and verify them."""
    remote = _remote(url)
    verdicts, unreadable = remote.records(headers=True)[1:]
    texts = [*map(str, verdicts.values()), *unreadable.values()]
    for stored in remote.scan():
        try:
            texts.append(str(remote.verify(stored.digest)))
        except (CorruptBlobError, FormatVersionError) as error:
            texts.append(str(error))
    if MAIN.name in texts:
        raise Succeeded("main is said to have signed it")
    _check_texts(texts)


def _wait(secret: Path, folder: Path, url: str) -> None:
    """Build entry 1, which others claim, on a host with ``claims=1`` and a second of patience."""
    variables = {"TRTCACHE_SIGNING_KEY": str(secret), "TRTCACHE_BUSY_TIMEOUT": "1"}
    _expect_own(
        _cache(folder, f"{url}&mode=write&claims=1", **variables).get_or_build_key(key_of(1), lambda: engine_of(1))
    )


def _check_layout(_: Path, url: str) -> None:
    """Open a remote with a wrong layout file."""
    try:
        _remote(url).check_format()
    except StoreError as error:
        _check_texts([str(error)])
    else:
        raise Succeeded("the layout was accepted")


def _name(number: int) -> str:
    return _object_name(key_of(number).digest)


def _object_name(digest: str) -> str:
    return f"{_PREFIX}/entries/v1/{digest[:2]}/{digest}.trtc"


def _cache(folder: Path, url: str, **variables: str) -> Cache:
    keys = f"{MAIN.public} {_LEFT.public}:2020-01-01"
    environ = {"TRTCACHE_DIR": str(folder / "cache"), "TRTCACHE_TRUSTED_KEYS": keys, "TRTCACHE_REMOTE": url}
    return Cache(config=Config.from_environ({**environ, "XDG_CONFIG_HOME": str(folder / "config"), **variables}))


def _remote(url: str) -> RemoteEntries:
    from trtcache.remote.entries import RemoteEntries  # in children only: it does not outlive a fork

    return RemoteEntries(RemoteUrl.parse(url), RemoteSettings(), _TRUST)


def _expect_own(entry: Entry) -> None:
    if bytes(entry.read()) != engine_of(1):
        raise Succeeded("it was served with other bytes")


def _check_texts(texts: list[str]) -> None:
    for text in texts:
        if not text.isprintable() or len(text) > LONGEST_TEXT:
            raise Succeeded(f"a message of {len(text)} characters: {text[:200]!a}")


def _try(folder: Path, name: str, attempt: Attempt) -> None:
    """Make an attempt on a victim."""
    folder.mkdir()
    with _served(attempt) as url:
        run_victim(folder, name, lambda: _watch(folder, url, attempt))


def _watch(folder: Path, url: str, attempt: Attempt) -> int:
    """Be the victim: return 0 if the attempt failed."""
    texts = prepare_victim(folder)
    before_kib, began_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    try:
        attempt.victim(folder, url)
        took_s = time.monotonic() - began_s
        growth_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) << 10
        _check_texts(texts)
        if took_s > MOST_S or growth_bytes > MOST_GROWTH_BYTES:
            raise Succeeded(f"it took {took_s:.1f} s and {growth_bytes >> 20} MiB")
        if left := [path.name for path in folder.rglob("*") if path.name.startswith(".tmp-")]:
            raise Succeeded(f"files were left: {left}")
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent shows it
        (folder / "why").write_text(str(error) if isinstance(error, Succeeded) else repr(error)[:1000])
        return 1
    return 0


@contextlib.contextmanager
def _served(attempt: Attempt) -> Iterator[str]:
    """Serve a bucket, and yield its URL."""
    with _Server(attempt) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"s3://engines/{_PREFIX}?endpoint=http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Server(ThreadingHTTPServer):
    """A bucket. Nothing is ever deleted, as the attacker would put it again."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = {name.encode(): raw for name, raw in attempt.objects.items()}
        self.ages_s = dict.fromkeys(self.objects, attempt.age_s)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def _name(self) -> bytes:
        return unquote(urlsplit(self.path).path).encode().removeprefix(b"/engines/")

    def do_GET(self) -> None:
        query, name = parse_qs(urlsplit(self.path).query), self._name
        if "list-type" in query:
            start, after = (query.get(name, [""])[0].encode() for name in ("prefix", "start-after"))
            self._answer(200, _listing(self.server.objects, start, after))
        elif (raw := self.server.objects.get(name)) is None:
            self._answer(404)
        elif found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, end = int(found[1]), min(int(found[2]) + 1, len(raw))
            self._answer(206, raw[first:end], content_range=f"bytes {first}-{end - 1}/{len(raw)}")
        else:
            self._answer(200, raw)

    do_HEAD = do_GET  # noqa: N815  # the name that the library calls

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self._name in self.server.objects and "If-None-Match" in self.headers
        if not refused:
            self.server.objects[self._name] = content
        self._answer(412 if refused else 200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def _answer(self, status: int, content: bytes = b"", *, content_range: str = "") -> None:
        self.send_response(status)
        made_s = time.time() - self.server.ages_s.get(self._name, 0.0)
        self.send_header("Last-Modified", formatdate(made_s, usegmt=True))
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(content)))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def handle(self) -> None:
        """Answer until the victim leaves."""
        with contextlib.suppress(OSError):
            super().handle()


def _listing(objects: dict[bytes, bytes], start: bytes, after: bytes) -> bytes:
    """Return the answer to a request for names, all in one page."""
    names = sorted(name for name in objects if name.startswith(start) and name > after)
    rows = (
        b"<Contents><Key>%b</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>%d</Size></Contents>"
        % (html.escape(name.decode()).encode("ascii", "xmlcharrefreplace"), len(objects[name]))
        for name in names
    )
    return b"<ListBucketResult>%b</ListBucketResult>" % b"".join(rows)

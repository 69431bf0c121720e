"""An attacker who writes to a bucket, or runs the web server of a remote: wrong entries, endless answers, stolen text.

Both are played by a web server on loopback that answers as the attempt says. The victim trusts one key, and builds what
it is not given.
"""

from __future__ import annotations

import contextlib
import gzip
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks.poisoning import EVIL, variants
from attacks.stage import MAIN, PULL, Stage, engine_of, file_of, key_of
from attacks.victim import SECRETS, prepare_victim, run_victim
from trtcache.cache import Cache
from trtcache.config.environment import Config

MOST_GROWTH_BYTES = 96 << 20
MOST_S = 4.0

_ENDLESS_S = 8.0
_CHUNK = b"x" * (1 << 20)
_TIMES = b'Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nETag: "1"\r\n'
_ESCAPES = b"\x1b]0;owned\x07\x1b[31m\r\n2026 CRITICAL all is lost\xe2\x80\xae"


def attack(folder: Path) -> str:
    """Answer the victim's request in each way, over S3 and as a web folder, and watch what it does."""
    plants, answers = _plants(folder), _answers()
    # What a build needs is imported here, once; nothing of the remote tier is, which does not outlive a fork.
    Cache(folder / "warm", remote=[]).get_or_build_key(key_of(1), lambda: b"")
    tried = 0
    for name, raw in {**{name: _object(raw) for name, raw in plants.items()}, **answers}.items():
        for scheme in ("s3", "http"):
            _try(folder / f"{scheme}-{tried}", name, scheme, raw)
            tried += 1
    return (
        f"{len(plants)} objects and {len(answers)} kinds of answers, over S3 and HTTP: each was built in less than "
        f"{MOST_S:.0f} s and {MOST_GROWTH_BYTES >> 20} MiB, and no message had an escape or a credential in it"
    )


def _plants(folder: Path) -> dict[str, bytes]:
    """Return objects for key 1 by somebody whom the victim does not trust, or by nobody."""
    stage = Stage.set(folder / "stage")
    own = stage.put(stage.open(PULL, PULL, MAIN), 1, EVIL).read_bytes()
    other = stage.put(stage.main(), 2).read_bytes()
    return {
        **variants(own, other),
        "main's entry of another key": other,
        "a header of 16 MiB": file_of(b"[" * (16 << 20)),
        "a header that names no bytes": file_of(b""),
        "signatures only": file_of(b"", b"0" * (64 << 10)),
    }


def _object(raw: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda client, _: client.sendall(
        b"HTTP/1.1 200 OK\r\n" + _TIMES + b"Content-Length: %d\r\n\r\n" % len(raw) + raw
    )


def _answers() -> dict[str, Callable[[socket.socket, bytes], None]]:
    """Return answers that no sound server gives."""

    def refuse(client: socket.socket, page: bytes, status: bytes = b"403 No") -> None:
        client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(page)) + page)

    def endless(start: bytes, more: bytes) -> Callable[[socket.socket, bytes], None]:
        def send(client: socket.socket, _: bytes) -> None:
            client.sendall(start)
            ends_s = time.monotonic() + _ENDLESS_S
            while time.monotonic() < ends_s:
                client.sendall(more)

        return send

    bomb = gzip.compress(bytes(256 << 20))
    chunk = b"100000\r\n" + _CHUNK + b"\r\n"
    return {
        "a refusal with escapes": lambda client, _: refuse(client, _ESCAPES),
        "an error with escapes": lambda client, _: refuse(client, _ESCAPES, b"500 No"),
        "a refusal that repeats the request": lambda client, request: refuse(client, request[-1500:]),
        "an error that repeats the request": lambda client, request: refuse(client, request[-1500:], b"500 No"),
        "a page of 256 MiB, compressed": lambda client, _: client.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n%bContent-Length: %d\r\n\r\n" % (_TIMES, len(bomb)) + bomb
        ),
        "an object without an end": endless(
            b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (_TIMES, 1 << 40), _CHUNK
        ),
        "chunks without an end": endless(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % _TIMES, chunk),
        "a header without an end": endless(b"HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n" * 1000),
        "interim answers without an end": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        "a length and chunks without an end": endless(
            b"HTTP/1.1 200 OK\r\n%bContent-Length: 4000\r\nTransfer-Encoding: chunked\r\n\r\n" % _TIMES, chunk
        ),
        "two lengths": lambda client, _: client.sendall(
            b"HTTP/1.1 200 OK\r\n%bContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef" % _TIMES
        ),
        "ten thousand headers": lambda client, _: client.sendall(
            b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(10_000)) + b"\r\n"
        ),
        "a redirect to itself": lambda client, request: client.sendall(
            b"HTTP/1.1 302 No\r\nLocation: %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % request.split()[1]
        ),
        "a redirect to a file": lambda client, _: client.sendall(
            b"HTTP/1.1 302 No\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        "another protocol": lambda client, _: client.sendall(
            b"HTTP/1.1 101 No\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n" + _CHUNK
        ),
        "nonsense": lambda client, _: client.sendall(b"\x00\xff" * 1000),
        "times of nobody": lambda client, _: client.sendall(
            b"HTTP/1.1 200 OK\r\nLast-Modified: \xff\xfe\r\nETag: \x80\r\nContent-Length: 5\r\n\r\nabcde"
        ),
    }


def _try(folder: Path, name: str, scheme: str, answer: Callable[[socket.socket, bytes], None]) -> None:
    """Have a victim ask for entry 1."""
    folder.mkdir()
    with _served(answer) as port:
        run_victim(folder, f"{name} ({scheme})", lambda: _ask(folder, scheme, port))


def _ask(folder: Path, scheme: str, port: int) -> int:
    """Be the victim: return 0 if nothing of the attacker's got anywhere."""
    texts = prepare_victim(folder)
    url = f"s3://engines/main?endpoint=http://127.0.0.1:{port}" if scheme == "s3" else f"http://127.0.0.1:{port}/main"
    environ = {"TRTCACHE_DIR": str(folder / "cache"), "TRTCACHE_TRUSTED_KEYS": str(MAIN.public), "TRTCACHE_REMOTE": url}
    cache = Cache(config=Config.from_environ({**environ, "XDG_CONFIG_HOME": str(folder / "config")}))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.monotonic()
    entry = cache.get_or_build_key(key_of(1), lambda: engine_of(1))
    took_s = time.monotonic() - began_s
    time.sleep(0.2)  # what a thread goes on with
    growth_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) << 10
    texts += [path.read_text() for path in folder.rglob("*.json*")]
    whole = "".join(texts)
    found = {
        "it was served with other bytes": bytes(entry.read()) != engine_of(1),
        f"it took {took_s:.1f} s": took_s > MOST_S,
        f"it took {growth_bytes >> 20} MiB": growth_bytes > MOST_GROWTH_BYTES,
        "files were left": any(path.name.startswith(".tmp-") for path in folder.rglob("*")),
        f"a message had a credential: {whole}": any(secret in whole for secret in SECRETS.values()),
        f"a message had an escape: {whole!a}": not "".join(whole.split("\n")).isprintable(),
    }
    if reasons := [reason for reason, is_so in found.items() if is_so]:
        (folder / "why").write_text("; ".join(reasons))
    return len(reasons)


@contextlib.contextmanager
def _served(answer: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """Answer each request so, and yield the port."""

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (part := client.recv(1 << 16)):
                request += part
            answer(client, request)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)

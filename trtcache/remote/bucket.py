"""Objects in a bucket or in a web folder, through obstore. This is the only file that imports obstore.

Calls block for as long as the time-outs allow, and a signal does not interrupt them: look-ups call them in a thread
(``connection.py``). obstore is not safe after a fork: see ``used_by``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RemoteError

if TYPE_CHECKING:
    from trtcache.config.remotes import RemoteSettings, RemoteUrl

PART_BYTES: Final = 8 << 20
"""Larger objects are uploaded in parts of this size, each with time-outs of its own."""

ARCHIVED: Final = "archived"
"""Reason for one object in a storage class that has to be restored first, such as Glacier: the others can be read."""

REFUSED: Final = "refused"
"""Reason for one object that the server does not take, such as a proxy with a limit for its size: it takes others."""

NO_LENGTH: Final = "no-length"
"""Reason for an answer without a Content-Length, which obstore does not read: the server compresses or chunks it."""

_PATIENT_S = 30.0
_PATIENT_CHUNK_BYTES = 64 << 10
_NO_LENGTH_WHY = "an answer of the server has no Content-Length; switch compression and chunked answers off there"
_STATUS = re.compile(r"status code: (\d{3})")
_NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)<|The specified bucket does not exist", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(r"credential|token file|token request|config profile", re.IGNORECASE)
_CREDENTIALS_URL = re.compile(r"https?://(169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal)\b")
_ARCHIVED = re.compile(r"<Code>(InvalidObjectState|BlobArchived)<")
_ACCESS = re.compile(r"<Code>[A-Za-z]*(Auth|Bucket|Credential|Location|Region|Signature|Token)[A-Za-z]*<")
_NON_2XX = "Server returned non-2xx status code: "
_UNSENT = "HTTP error: error sending request"
_CAUSES = {
    "ConnectionRefused": "connection refused",
    "ConnectionReset": "the connection was reset",
    "dns error": "unknown host",
    "TimedOut": "no answer in time",
    "kind: Timeout": "no answer in time",
}
"""Word in the library's error -> what it means. The message itself has the same text for all."""

_REQUEST = re.compile(r"Error performing ([A-Z]+ \S+) in \S+(?:, after .*?)? +- (.*)")
_CODE = re.compile(r"<Code>([A-Za-z]{1,40})</Code>")
_AWS_SOURCES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

_USED_BY: list[int] = []


def used_by() -> int:
    """Return the process in which obstore was first used, 0 if it was not.

    In a child that was forked after that, a request waits for threads that only its parent has.
    """
    return _USED_BY[0] if _USED_BY else 0


@frozen_dataclass
class RemoteObject:
    """An object in a listing. ``name`` is without the remote's prefix."""

    name: str
    size_bytes: int
    modified_ns: int


def open_bucket(url: RemoteUrl, settings: RemoteSettings, *, patient: bool = False) -> Bucket:
    """Return the client of a remote: a ``Bucket`` for every scheme so far. A new kind of remote gets its case here.

    The arguments are those of ``Bucket``.

    Raises:
        RemoteError: obstore is not installed, or refuses the configuration.
    """
    return Bucket(url, settings, patient=patient)


class Bucket:
    """One remote. ``patient`` is for uploads and commands, which may take longer than a look-up.

    Each method raises RemoteError if a request fails.
    """

    def __init__(self, url: RemoteUrl, settings: RemoteSettings, *, patient: bool = False) -> None:
        """Prepare requests; nothing is sent.

        Raises:
            RemoteError: obstore is not installed, or refuses the configuration.
        """
        self.url = url
        try:
            import obstore  # 9 ms, at the first miss
        except ImportError as error:
            raise RemoteError(
                url.text, "not-installed", "obstore is missing: pip install 'trtcache[remote]'"
            ) from error
        if not _USED_BY:
            _USED_BY.append(os.getpid())
        self._api = obstore
        self._chunk_bytes = _PATIENT_CHUNK_BYTES if patient else 1  # a look-up has a deadline for each few bytes
        read_s = max(settings.timeout_s, _PATIENT_S) if patient else settings.timeout_s
        options = {
            "connect_timeout": timedelta(seconds=settings.connect_timeout_s * (10 if patient else 1)),
            "read_timeout": timedelta(seconds=read_s),
            "timeout": timedelta(days=1),  # of a whole answer: large ones are limited by their throughput
            "allow_http": url.is_plain_http,
        }
        retries: dict[str, Any] = {
            "max_retries": 3 if patient else 1,
            "retry_timeout": timedelta(seconds=0.75 * read_s),
        }
        if not patient:
            retries["backoff"] = {"init_backoff": timedelta(milliseconds=2)}
        with _translate_errors(url):
            self._store = _open_store(url, client_options=options, retry_config=retries)

    def get(self, name: str, *, most_bytes: int | None = None) -> tuple[RemoteObject, Iterator[bytes]]:
        """Return an object's size and time, and its bytes as they arrive, or ``most_bytes`` of its beginning.

        Raises:
            FileNotFoundError: there is none.
            RemoteError: the request failed; reading the bytes raises the same.
        """
        with _translate_errors(self.url):
            begin: Any = {"range": (0, most_bytes)} if most_bytes else None
            found = self._api.get(self._store, self._path(name), options=begin)
            chunks = iter(found.stream(min_chunk_size=self._chunk_bytes))
            return self._object(found.meta), self._read(chunks)

    def get_part(self, name: str, start: int, end: int) -> mmap:
        """Return the bytes of an object from ``start`` up to ``end``.

        Raises:
            FileNotFoundError: there is none.
            RemoteError: the request failed, or the server answers with the whole object.
        """
        # A mapping goes back to the system when it is closed, what many threads free does not: a download of 250 MiB
        # took 70 to 100 MiB of memory with bytearrays, and 21 with mappings.
        part, count = mmap(-1, end - start), 0
        with _translate_errors(self.url):
            found = self._api.get(self._store, self._path(name), options={"range": (start, end)})
            for chunk in found.stream(min_chunk_size=1):
                part[count : count + len(chunk)] = chunk
                count += len(chunk)
        if count != end - start:
            raise RemoteError(self.url.text, "cut", f"{count} of {end - start} bytes from {start}")
        return part

    def _read(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with _translate_errors(self.url):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def put(self, name: str, data: Iterator[memoryview], size_bytes: int, *, replace: bool = False) -> bool:
        """Upload an object and return True, or return False if there is one, unless that is to be replaced.

        Raises:
            RemoteError: a request failed.
        """
        path = self._path(name)
        if not replace and (size_bytes > PART_BYTES or not self._creates) and self.head(name) is not None:
            return False  # a conditional create of a large object would be refused after all of it was sent
        try:
            with _translate_errors(self.url):
                if size_bytes > PART_BYTES and self._creates:  # a web folder takes no parts: all of it is in memory
                    self._api.put(self._store, path, data, chunk_size=PART_BYTES, max_concurrency=4)
                else:
                    mode: Literal["create", "overwrite"] = "overwrite" if replace or not self._creates else "create"
                    self._api.put(self._store, path, b"".join(data), mode=mode, use_multipart=False)
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise RemoteError(self.url.text, "no-bucket", "the bucket or folder does not exist") from error
        return True

    def head(self, name: str) -> RemoteObject | None:
        """Return the size and the time of an object, None if there is none."""
        try:
            with _translate_errors(self.url):
                return self._object(self._api.head(self._store, self._path(name)))
        except FileNotFoundError:
            return None

    def list(self, folder: str, *, after: str | None = None) -> Iterator[RemoteObject]:
        """Yield the objects in a folder and below it; those with names after ``after`` in the folder.

        Raises:
            RemoteError: a request failed, the server cannot list, or one of the names is not a path (reason ``name``).
        """
        offset = None if after is None else self._path(f"{folder}/{after}")
        with _translate_errors(self.url):
            batches = iter(self._api.list(self._store, self._path(folder), offset=offset, chunk_size=1000))
        while True:
            with _translate_errors(self.url):
                batch = next(batches, None)
            if batch is None:
                return
            yield from map(self._object, batch)

    def delete(self, name: str) -> None:
        """Delete an object, if there is one."""
        try:
            with _translate_errors(self.url):
                self._api.delete(self._store, self._path(name))
        except FileNotFoundError:
            return

    @property
    def _creates(self) -> bool:
        """Whether the server can create an object only if there is none."""
        return self.url.scheme not in ("http", "https")

    def _path(self, name: str) -> str:
        # A web folder's prefix is part of the URL that obstore's store was opened with.
        return f"{self.url.prefix}/{name}" if self.url.prefix and self._creates else name

    def _object(self, meta: Any) -> RemoteObject:
        name = str(meta["path"])
        start = f"{self.url.prefix}/" if self.url.prefix and self._creates else ""
        return RemoteObject(name.removeprefix(start), int(meta["size"]), int(meta["last_modified"].timestamp() * 1e9))


def _open_store(url: RemoteUrl, **options: Any) -> Any:
    from obstore import store

    endpoint: dict[str, Any] = {"endpoint": url.endpoint} if url.endpoint else {}
    if url.scheme == "s3":
        has_region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if url.region or (url.endpoint and not has_region):
            options["region"] = url.region or "us-east-1"  # what servers other than Amazon's expect
        return store.S3Store(url.place, credential_provider=_profile(url), **endpoint, **options)
    if url.scheme == "gs":
        base: dict[str, Any] = {"base_url": url.endpoint} if url.endpoint else {}
        return store.GCSStore(url.place, **base, **options)
    if url.scheme == "az":
        account: dict[str, Any] = {"account_name": url.account} if url.account else {}
        return store.AzureStore(url.place, **account, **endpoint, **options)
    return store.HTTPStore(url.text, **options)


def _profile(url: RemoteUrl) -> Any:
    """Return boto3's credentials where the user has a profile, which obstore does not read; None otherwise.

    Raises:
        RemoteError: there is a profile, and boto3 is not installed.
    """
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    has_profile = "AWS_PROFILE" in os.environ or Path(named).expanduser().exists()
    if any(name in os.environ for name in _AWS_SOURCES) or not has_profile:
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        why = "credentials in ~/.aws are read by boto3, which is missing: pip install boto3"
        raise RemoteError(url.text, "no-credentials", why) from error
    return Boto3CredentialProvider()


@contextmanager
def _translate_errors(url: RemoteUrl) -> Iterator[None]:
    """Raise RemoteError for every error of obstore; FileNotFoundError and FileExistsError are answers."""
    try:
        yield
    except (RemoteError, StopIteration):
        raise
    except Exception as error:  # noqa: BLE001  # whatever a library raises, a compile goes on
        text = str(error)
        name = type(error).__name__
        if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(text):
            raise FileNotFoundError(url.text) from None
        if name == "AlreadyExistsError":
            raise FileExistsError(url.text) from None
        reason = _reason(name, text)
        raise RemoteError(url.text, reason, _NO_LENGTH_WHY if reason == NO_LENGTH else _summary(text)) from None


def _reason(name: str, text: str) -> str:
    status = match[1] if (match := _STATUS.search(text)) else ""
    message = text.partition("Debug source:")[0].partition(_NON_2XX)[0]
    words = " ".join(word for word in message.split() if "/" not in word)  # a bucket may be named "credentials"
    table = (
        ("name", name == "InvalidPathError"),  # first: such a name is in the text, and may have any word in it
        (ARCHIVED, bool(_ARCHIVED.search(text))),
        (NO_LENGTH, "Content-Length Header missing" in message),
        ("no-bucket", bool(_NO_BUCKET.search(text))),
        ("no-credentials", bool(_NO_CREDENTIALS.search(words) or _CREDENTIALS_URL.search(message))),
        ("denied", name in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403")),
        ("unsupported", status in ("405", "501")),  # a web server without PUT
        (REFUSED, status == "413" or (status == "400" and not _ACCESS.search(text))),
        ("busy", status == "429" or status.startswith("5")),
        ("timeout", "kind: Timeout" in text or "TimedOut" in text),
        ("unreachable", "kind: Connect" in text or "kind: Request" in text),
        ("cut", "kind: Interrupted" in text or "kind: Decode" in text),
    )
    return next((reason for reason, is_it in table if is_it), "error")


def _summary(text: str) -> str:
    """Return the request and what became of it, without what a server or a URL may have put into a message.

    The page of a refusal is the server's own text: it can repeat the request with its signature, or have escape
    sequences for a terminal. Of it, the code of S3 and Azure is kept. Parameters of Azure's URLs may be a signature.
    """
    message, _, source = text.partition("Debug source:")
    line, refused, page = " ".join(message.split()).partition(_NON_2XX)
    if refused:
        code = f" ({found[1]})" if (found := _CODE.search(page)) else ""
        line += page.partition(":")[0][:80] + code
    elif line.endswith(_UNSENT):
        cause = next((words for mark, words in _CAUSES.items() if mark in source), "no connection")
        line = line.removesuffix(_UNSENT) + cause
    line = re.sub(r"\?\S+", "?...", line)[:2000]
    if request := _REQUEST.search(line):
        line = f"{request[1][:250]}: {request[2]}"
    return "".join(character if character.isprintable() else "?" for character in line[:400])

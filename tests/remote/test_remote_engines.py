"""Other ways to reach a remote: a folder of a web server, and the credentials of a profile."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import BUCKET, fetch
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.errors import RemoteError
from trtcache.remote import uploads
from trtcache.remote.bucket import PART_BYTES, Bucket

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.remote.conftest import Hosts


class Folder(BaseHTTPRequestHandler):
    """GET, HEAD and PUT of files in memory, which is what nginx does with ``dav_methods PUT``."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    asked: list[str]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.asked.append(self.command)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 08:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def do_GET(self) -> None:
        """Answer with a file."""
        found = self.files.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET  # noqa: N815  # the base class's name

    def do_PUT(self) -> None:
        """Store a file."""
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def folder() -> Iterator[tuple[type[Folder], str]]:
    """A running web server, and the URL of a folder on it."""
    handler = type("Served", (Folder,), {"files": {}, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_address[1]}/cache/main"
        server.shutdown()
        thread.join()


def test_a_folder_of_a_web_server(hosts: Hosts, folder: tuple[type[Folder], str]) -> None:
    """It is read by GET; an upload asks first, since there is no condition on a PUT."""
    served, url = folder
    fetch(hosts.writer(TRTCACHE_REMOTE=f"{url}?mode=write"))
    assert uploads.flush(5) == 0
    assert served.asked == ["GET", "HEAD", "PUT"]
    assert all(path.startswith("/cache/main/entries/v1/") for path in served.files)
    found = fetch(hosts.host("b", TRTCACHE_REMOTE=url))
    assert (found.outcome, found.origin, bytes(found.read())) == ("hit", "remote", b"engine")
    assert served.asked[3:] == ["GET"]
    fetch(hosts.writer("c", TRTCACHE_REMOTE=f"{url}?mode=write", TRTCACHE_RECACHE="1"), b"other")
    assert uploads.flush(5) == 0
    assert served.asked[4:] == ["HEAD"]


def test_a_large_entry_goes_to_a_web_server_in_one_piece(hosts: Hosts, folder: tuple[type[Folder], str]) -> None:
    """It has no uploads in parts."""
    served, url = folder
    content = os.urandom(PART_BYTES + 1)
    fetch(hosts.writer(TRTCACHE_REMOTE=f"{url}?mode=write"), content)
    assert uploads.flush(60) == 0
    assert served.asked == ["GET", "HEAD", "PUT"]
    assert bytes(fetch(hosts.host("b", TRTCACHE_REMOTE=url)).read()) == content


def test_answers_without_a_length_are_named(
    hosts: Hosts, folder: tuple[type[Folder], str], caplog: pytest.LogCaptureFixture
) -> None:
    """Obstore reads none: each look-up misses, and the warning says what to change at the server."""
    served, url = folder
    fetch(hosts.writer(TRTCACHE_REMOTE=f"{url}?mode=write"))
    assert uploads.flush(5) == 0

    def answer(self: Folder) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        content = self.files[self.path]
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))

    served.do_GET = answer  # type: ignore[method-assign]
    for name in "bcd":
        host = hosts.host(name, TRTCACHE_REMOTE=url)
        found = fetch(host)
        assert host._remotes is not None
        assert (found.outcome, host._remotes.reasons(found.key.digest)) == ("built", (f"{url}: no-length",))
    assert "no Content-Length; switch compression" in caplog.text


def test_a_profile_is_read_by_boto3(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moto: int) -> None:
    """Obstore reads none, and would ask the machine's metadata service in vain."""
    pytest.importorskip("boto3")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[farm]\naws_access_key_id = a\naws_secret_access_key = b\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_PROFILE", "farm")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    hosts.publish()
    assert fetch(hosts.host("b")).origin == "remote"


def test_a_bucket_lists_and_deletes(hosts: Hosts, moto: int) -> None:
    """Names are without the prefix; deleting what is not there is no error."""
    entry = hosts.publish()
    bucket = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings())
    (found,) = bucket.list("entries/v1")
    assert found.name.endswith(f"{entry.key.digest}.trtc")
    assert bucket.head(found.name) == found
    bucket.delete(found.name)
    bucket.delete(found.name)
    assert (list(bucket.list("entries/v1")), bucket.head(found.name)) == ([], None)


def test_errors_have_no_credentials_and_no_parameters(hosts: Hosts) -> None:
    """The message is one line that names the remote."""
    bucket = Bucket(RemoteUrl.parse(hosts.url.replace(BUCKET, "no-such-bucket", 1)), RemoteSettings())
    with pytest.raises(RemoteError) as caught:
        bucket.get("entries/v1/x")
    text = str(caught.value)
    assert caught.value.reason == "no-bucket"
    assert "\n" not in text
    assert "secret-of-the-test" not in text

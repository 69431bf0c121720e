"""Real servers on loopback, each with a bucket or a folder named ``engines``: Ceph, nginx, Azurite, rclone and JuiceFS.

Each is a context manager that yields a ``Server``. Their processes run in the foreground and are killed when this
process ends in whatever way. ``make farm`` installs what they need, partly into ``FARM``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

BUCKET = "engines"
FARM = Path(os.environ.get("TRTCACHE_FARM", Path(sys.prefix) / "farm")).absolute()
"""Folder with the programs that come from npm and PyPI."""

_KEY, _SECRET = "farm", "secret-of-the-farm"
_AZURITE_ACCOUNT = "devstoreaccount1"
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # documented


class MissingServerError(Exception):
    """A server cannot be started here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A running server. ``parameters`` go behind the ``?`` of a URL below ``place``; ``environ`` has credentials.

    ``honest`` is whether it creates an object only if there is none; ``lists`` whether it can list a folder.
    """

    name: str
    version: str
    port: int
    place: str
    parameters: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    honest: bool = True
    lists: bool = True

    def url(self, prefix: str) -> str:
        """Return the URL of a prefix, as it stands in TRTCACHE_REMOTE; further parameters can be appended."""
        return f"{self.place}/{prefix}?{self.parameters or 'mode=read'}"


def program(name: str, *places: str) -> str:
    """Return the path of a program.

    Raises:
        MissingServerError: it is not installed.
    """
    path = os.pathsep.join([*(str(FARM / place) for place in places), os.environ.get("PATH", ""), "/usr/sbin"])
    if not (found := shutil.which(name, path=path)):
        raise MissingServerError(f"{name} is not installed: make farm")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in made]


@contextmanager
def daemon(log: Path, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a program that stays in the foreground; the kernel kills it when this process ends."""
    bound = [program("setpriv"), "--pdeathsig", "KILL", *command]
    with log.open("ab") as output:
        process = subprocess.Popen(bound, stdout=output, stderr=output, env={**os.environ, **(environ or {})})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, log: Path, *, timeout_s: float = 30) -> None:
    """Wait until a port accepts connections.

    Raises:
        MissingServerError: it does not; the message has the end of the server's output.
    """
    ends_s = time.monotonic() + timeout_s
    while time.monotonic() < ends_s:
        with socket.socket() as client:
            if not client.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise MissingServerError(f"no answer after {timeout_s:.0f} s: {log.read_text(errors='replace')[-500:]}")


def output_of(*command: str, environ: Mapping[str, str] | None = None, timeout_s: float = 60) -> str:
    """Run a program, and return what it prints.

    Raises:
        MissingServerError: it failed.
    """
    whole = {**os.environ, **(environ or {})}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise MissingServerError(f"{Path(command[0]).name}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


def make_bucket(port: int, key: str, secret: str) -> None:
    """Create the bucket on an S3 server."""
    import boto3
    from botocore.config import Config

    endpoint = f"http://127.0.0.1:{port}"
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 10})
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=config,
    )
    client.create_bucket(Bucket=BUCKET)


def s3_server(name: str, version: str, port: int, key: str, secret: str, *, honest: bool = True) -> Server:
    """Describe an S3 server."""
    environ = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    return Server(
        name, version, port, f"s3://{BUCKET}", f"endpoint=http://127.0.0.1:{port}", environ=environ, honest=honest
    )


_CEPH = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{monitor}]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv4 = true
# The gateway asks for encryption by default, which there is none of without authentication.
ms mon client mode = crc
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
osd max object name len = 256
osd class load list = *
memstore device bytes = 6442450944
mon allow pool size one = true
mon data avail crit = 1
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
rgw data = {folder}/rgw
run dir = {folder}
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
log file = {folder}/$name.log
debug rgw = 0
rgw thread pool size = 64
# Without tcp_nodelay, each answer without a body takes 40 ms.
rgw frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
"""


@contextmanager
def ceph(folder: Path) -> Iterator[Server]:
    """Ceph's S3 gateway before a cluster of one monitor, one manager and one OSD that keeps objects in memory."""
    names = ("ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph")
    monitor, manager, storage, gateway, admin, mapper, client = map(program, names)
    monitor_port, port = free_ports(2)
    fsid, config, log = str(uuid.uuid4()), folder / "ceph.conf", folder / "output"
    for name in ("mon", "mgr", "osd", "rgw"):
        (folder / name).mkdir()
    config.write_text(_CEPH.format(fsid=fsid, folder=folder, monitor=monitor_port, gateway=port))
    common = ("-c", str(config), "--setuser", "root", "--setgroup", "root")
    output_of(mapper, "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{monitor_port}]", f"{folder}/map")
    output_of(monitor, *common, "--mkfs", "-i", "a", "--monmap", f"{folder}/map")
    with ExitStack() as stack:
        stack.enter_context(daemon(log, [monitor, *common, "-i", "a", "-f"]))
        identity = str(uuid.uuid4())
        output_of(client, "-c", str(config), "--connect-timeout", "30", "osd", "new", identity, "0")
        stack.enter_context(daemon(log, [manager, *common, "-i", "x", "-f"]))
        output_of(storage, *common, "-i", "0", "--mkfs", "--osd-uuid", identity)
        stack.enter_context(daemon(log, [storage, *common, "-i", "0", "-f"]))
        stack.enter_context(daemon(log, [gateway, *common, "-n", "client.rgw.a", "-f"]))
        wait_for(port, log, timeout_s=90)
        user = ("user", "create", "--uid", "farm", "--display-name", "farm")
        output_of(admin, "-c", str(config), *user, "--access-key", _KEY, "--secret", _SECRET)
        make_bucket(port, _KEY, _SECRET)
        version = output_of(gateway, "--version").split()[2]
        yield s3_server("Ceph RGW", version, port, _KEY, _SECRET)


_NGINX = """daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ }}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {folder}/incoming;
  proxy_temp_path {folder}/unused;
  fastcgi_temp_path {folder}/unused;
  uwsgi_temp_path {folder}/unused;
  scgi_temp_path {folder}/unused;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/files;
    dav_methods PUT DELETE;
    create_full_put_path on;
  }}
}}
"""


@contextmanager
def nginx(folder: Path) -> Iterator[Server]:
    """The web server nginx with PUT and DELETE: a folder of a web server."""
    command, (port,), log = program("nginx"), free_ports(1), folder / "output"
    (folder / "files" / BUCKET).mkdir(parents=True)
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, port=port))
    version = output_of(command, "-v").rpartition("/")[2].strip()
    arguments = ["-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")]
    with daemon(log, [command, *arguments]):
        wait_for(port, log)
        yield Server("nginx", version, port, f"http://127.0.0.1:{port}/{BUCKET}", honest=False, lists=False)


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Azurite, the emulator of Azure's blobs."""
    command, (port,), log = program("azurite-blob", "npm/node_modules/.bin"), free_ports(1), folder / "output"
    arguments = ["--silent", "--disableTelemetry", "--location", str(folder), "--blobHost", "127.0.0.1"]
    version = output_of(command, "--version").strip()
    with daemon(log, [command, *arguments, "--blobPort", str(port)]):
        wait_for(port, log)
        _make_container(port)
        parameters = f"account={_AZURITE_ACCOUNT}&endpoint=http://127.0.0.1:{port}/{_AZURITE_ACCOUNT}"
        environ = {"AZURE_STORAGE_ACCOUNT_KEY": _AZURITE_KEY}
        yield Server("Azurite", version, port, f"az://{BUCKET}", parameters, environ=environ)


def _make_container(port: int) -> None:
    """Create the container, by a request that is signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    resource = f"/{_AZURITE_ACCOUNT}/{_AZURITE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + named + resource
    signature = hmac.digest(base64.b64decode(_AZURITE_KEY), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_AZURITE_ACCOUNT}:{base64.b64encode(signature).decode()}"
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("PUT", f"/{_AZURITE_ACCOUNT}/{BUCKET}?restype=container", headers=headers)
    answer = connection.getresponse()
    if answer.status != 201:
        raise MissingServerError(f"the container was not created: {answer.status} {answer.read()[:300]!r}")
    connection.close()


@contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """``rclone serve s3``, which accepts conditions and ignores them."""
    command, (port,), log = program("rclone", "venv/bin"), free_ports(1), folder / "output"
    (folder / "files" / BUCKET).mkdir(parents=True)
    version = output_of(command, "version").split()[1]
    arguments = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{_KEY},{_SECRET}"]
    with daemon(log, [command, *arguments, "--config", str(folder / "config"), str(folder / "files")]):
        wait_for(port, log)
        yield s3_server("rclone serve s3", version, port, _KEY, _SECRET, honest=False)


@contextmanager
def juicefs(folder: Path) -> Iterator[Server]:
    """JuiceFS's S3 gateway, which ignores conditions too."""
    command, (port, metrics), log = program("juicefs", "venv/bin"), free_ports(2), folder / "output"
    meta = f"sqlite3://{folder}/meta.db"
    environ = {"MINIO_ROOT_USER": _KEY, "MINIO_ROOT_PASSWORD": _SECRET, "HOME": str(folder)}
    output_of(command, "format", "--storage", "file", "--bucket", f"{folder}/files/", meta, "farm", environ=environ)
    version = output_of(command, "version").split()[-1].partition("+")[0]
    address = [f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}"]
    arguments = ["gateway", meta, *address, "--multi-buckets", "--no-usage-report", "--cache-dir", str(folder)]
    with daemon(log, [command, *arguments], environ):
        wait_for(port, log)
        make_bucket(port, _KEY, _SECRET)
        yield s3_server("JuiceFS gateway", version, port, _KEY, _SECRET, honest=False)


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "ceph": ceph,
    "nginx": nginx,
    "azurite": azurite,
    "rclone": rclone,
    "juicefs": juicefs,
}
"""Name of a server -> how it is started in an empty folder."""

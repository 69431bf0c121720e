"""``trtcache warm`` with a remote: plans by a listing, uploads of what is only here, and a full remote in the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch

from tests.models import Affine
from tests.remote.conftest import put_object
from trtcache.remote import entries, uploads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy


@pytest.fixture
def matrix(interpreter: str, tmp_path: Path) -> Path:
    """Two programs of one key, and one that is never built."""
    program = torch.export.export(Affine(), (torch.randn(3, 4),))
    other = torch.export.export(torch.nn.Linear(4, 7), (torch.randn(3, 4),))
    for name, saved in (("model", program), ("copy", program), ("other", other)):
        torch.export.save(saved, tmp_path / f"{name}.pt2")
    path = tmp_path / "matrix.toml"
    path.write_text(
        f'[defaults]\nbackend = "{interpreter}"\n[[cells]]\nfile = ["model.pt2", "copy.pt2", "other.pt2"]\n'
    )
    return path


def _states(done: Result) -> list[str]:
    return [cell["state"] for cell in done.json["cells"]]


def _requests(proxy: FaultProxy) -> list[str]:
    """Return what was requested: listings, and the methods of the rest."""
    return ["LIST" if "list-type=" in path else method for method, path in proxy.requests]


def _on(hosts: Hosts, name: str, parameters: str = "") -> dict[str, str]:
    return {"TRTCACHE_DIR": str(hosts.folder / name), "TRTCACHE_REMOTE": f"{hosts.url}{parameters}"}


def test_a_plan_lists_the_remote_and_fetches_aliases(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """Of an engine its header only, for its signature. Aliases are fetched once."""
    writer = _on(hosts, "ci", "&mode=write")
    assert command("warm", matrix, "--cell", "0", **writer).code == 0
    assert any("/claims/" in path for _, path in proxy.requests)  # on by default
    for expected in (["LIST", "GET", "GET"], ["LIST", "GET"]):
        proxy.requests.clear()
        planned = command("warm", matrix, "--plan", "--json", **_on(hosts, "server"))
        assert _states(planned) == ["hit", "hit", "unknown"]
        assert _requests(proxy) == expected
        assert not planned.err
    assert command("ls", "--json", **_on(hosts, "server")).json["entries"] == []


def test_what_is_only_here_is_uploaded(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """An engine that was built without the remote, with its alias: then it is a hit on other hosts."""
    assert command("warm", matrix, "--cell", "0", **_on(hosts, "ci") | {"TRTCACHE_REMOTE": ""}).code == 0
    writer = _on(hosts, "ci", "&mode=write")
    planned = command("warm", matrix, "--only", "0-1", "--plan", "--json", **writer).json
    assert [len(cell["to_upload"]) for cell in planned["cells"]] == [2, 2]
    done = command("warm", matrix, "--only", "0-1", "--require-remote", **writer)
    assert (done.code, done.out) == (0, "0 built, 2 hit, 0 failed\n")
    assert "uploading 2 entries from the cache directory" in done.err
    assert _states(command("warm", matrix, "--plan", "--json", **_on(hosts, "server"))) == ["hit", "hit", "unknown"]
    proxy.requests.clear()
    command("warm", matrix, "--only", "0-1", **writer)
    assert _requests(proxy) == ["LIST"]


def test_a_cell_that_is_here_is_uploaded(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """Each form of the command asks whether the remote has it; a hit here that the remote lacks is none elsewhere."""
    assert command("warm", matrix, "--cell", "0", **_on(hosts, "ci") | {"TRTCACHE_REMOTE": ""}).code == 0
    writer, server = _on(hosts, "ci", "&mode=write"), _on(hosts, "ci")
    for environ in (writer, server):
        emitted = command("warm", matrix, "--only", "0-1", "--emit", "github", **environ)
        assert [one["cell"] for one in emitted.json["include"]] == [0, 1]
    assert command("warm", matrix, "--cell", "0", "--require-remote", **server).code == 2
    proxy.fault = "503"
    assert command("warm", matrix, "--cell", "0", "--require-remote", **writer).code == 4
    proxy.fault = ""
    assert command("warm", matrix, "--cell", "0", "--require-remote", **writer).code == 0
    assert _states(command("warm", matrix, "--plan", "--json", **_on(hosts, "server"))) == ["hit", "hit", "unknown"]
    assert command("warm", matrix, "--only", "0-1", "--emit", "github", **server).out == ""


def test_an_entry_that_others_would_not_use_is_not_uploaded(
    command: Callable[..., Result], hosts: Hosts, matrix: Path
) -> None:
    """One without a signature: the plan says so, the remote does not get it, and does not wait for it."""
    unsigned = _on(hosts, "ci") | {"TRTCACHE_REMOTE": "", "TRTCACHE_SIGNING_KEY": ""}
    assert command("warm", matrix, "--cell", "0", **unsigned).code == 0
    writer = _on(hosts, "ci", "&mode=write")
    (cell,) = command("warm", matrix, "--only", "0", "--plan", "--json", **writer).json["cells"]
    assert (cell["state"], cell["to_upload"]) == ("hit", [])
    assert cell["reason"] == "it is not uploaded: untrusted:unsigned"
    for form in (["--only", "0"], ["--cell", "0"]):
        done = command("warm", matrix, *form, "--require-remote", **writer)
        assert (done.code, "1 entry is not in" in done.err) == (4, True)
        assert command("stats", "--json", **writer).json["waiting_uploads"] == 0


def test_cells_of_other_images_are_not_in_the_remote(
    command: Callable[..., Result], hosts: Hosts, matrix: Path
) -> None:
    """Their keys are unknown here, so nothing says that the remote is full; each image has its own run."""
    matrix.write_text(matrix.read_text().replace(', "other.pt2"', "") + '[[cells]]\nfile = "other.pt2"\nimage = "b"\n')
    writer = _on(hosts, "ci", "&mode=write")
    for number in ("0", "2"):
        assert command("warm", matrix, "--cell", number, "--require-remote", **writer).code == 0
    done = command("warm", matrix, "--only", "0,2", "--require-remote", **writer)
    assert (done.code, done.out) == (4, "0 built, 1 hit, 0 failed\n")
    assert "1 cell of other images not built here" in done.err
    assert command("warm", matrix, "--only", "0", "--require-remote", **writer).code == 0
    assert command("warm", matrix, "--image", "b", "--require-remote", **writer).code == 0


def test_what_was_uploaded_long_ago_is_uploaded_again(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """By a host that has it; on another one, a process hits it first."""
    writer = _on(hosts, "ci", "&mode=write&lifetime=2s")
    command("warm", matrix, "--cell", "0", **writer)
    time.sleep(2.1)  # S3 has times in seconds
    proxy.requests.clear()
    planned = command("warm", matrix, "--only", "0", "--plan", "--json", **_on(hosts, "b", "&mode=write&lifetime=2s"))
    (cell,) = planned.json["cells"]
    assert (cell["state"], cell["is_renewed"]) == ("hit", True)
    assert uploads.flush(60) == 0
    assert _requests(proxy) == ["LIST", "GET", "GET"]  # a plan fetches the alias, and renews nothing
    proxy.requests.clear()
    assert command("warm", matrix, "--only", "0", **writer).out == "0 built, 1 hit, 0 failed\n"
    assert len({path for method, path in proxy.requests if method == "PUT"}) == 2


def test_the_remote_has_to_have_all_of_it(command: Callable[..., Result], hosts: Hosts, matrix: Path) -> None:
    """A remote that is only read is an error before the first build, and one that lacks an entry ends with 4."""
    done = command("warm", matrix, "--require-remote", **_on(hosts, "ci"))
    assert (done.code, "no remote is written to" in done.err) == (2, True)
    done = command("warm", matrix, "--require-remote", TRTCACHE_REMOTE="")
    assert (done.code, "no remote is set" in done.err) == (2, True)
    unsigned = _on(hosts, "ci", "&mode=write") | {"TRTCACHE_SIGNING_KEY": ""}
    done = command("warm", matrix, "--require-remote", **unsigned)
    assert (done.code, "nothing would be uploaded" in done.err) == (3, True)
    command("warm", matrix, "--cell", "0", **_on(hosts, "ci") | {"TRTCACHE_REMOTE": ""})
    lower = hosts.folder / "ci"
    upper = _on(hosts, "upper", "&mode=write") | {"TRTCACHE_PATH": f"{hosts.folder / 'upper'}:{lower}"}
    del upper["TRTCACHE_DIR"]
    done = command("warm", matrix, "--only", "0", "--require-remote", **upper, TRTCACHE_DIR="")
    assert (done.code, "1 entry is not in" in done.err) == (4, True)


def test_a_remote_that_fails_in_the_end_ends_with_4(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """As any failure that --require-remote finds, although all cells hit here."""
    writer = _on(hosts, "ci", "&mode=write")
    command("warm", matrix, "--cell", "0", **writer)
    proxy.fault = "reset"
    done = command("warm", matrix, "--only", "0", "--require-remote", **writer)
    assert (done.code, done.out) == (4, "0 built, 1 hit, 0 failed\n")
    assert f"--require-remote: {hosts.name}: " in done.err


def test_an_entry_that_a_stranger_signed_is_no_hit(
    command: Callable[..., Result], hosts: Hosts, keys: dict[str, tuple[str, Path]], moto: int, matrix: Path
) -> None:
    """A listing has it, a compile would not use it: it is planned to be built, and replaced by who has a good one."""
    writer, server = _on(hosts, "ci", "&mode=write"), _on(hosts, "server")
    command("warm", matrix, "--cell", "0", **writer)
    public, secret = keys["stranger"]
    stranger = {"TRTCACHE_TRUSTED_KEYS": public, "TRTCACHE_SIGNING_KEY": str(secret), "TRTCACHE_REMOTE": ""}
    command("warm", matrix, "--cell", "0", **_on(hosts, "stranger") | stranger)
    ((digest, *_),) = command("ls", **_on(hosts, "stranger") | stranger).rows
    (path,) = (hosts.folder / "stranger").rglob(f"{digest}.trtc")
    put_object(moto, f"{hosts.path}/entries/v1/{digest[:2]}/{digest}.trtc", path.read_bytes())

    (cell,) = command("warm", matrix, "--only", "0", "--plan", "--json", **server).json["cells"]
    assert (cell["state"], cell["key"]) == ("build", digest)
    assert cell["reason"] == "its entry cannot be used: untrusted:unknown-key"
    forbidden = command("warm", matrix, "--cell", "0", **server, TRTCACHE_FORBID_BUILD="1")
    assert (forbidden.code, f"({hosts.name}: untrusted:unknown-key" in forbidden.err) == (7, True)

    unread = {"TRTCACHE_DIR": str(hosts.folder / "stranger"), "TRTCACHE_TRUSTED_KEYS": public}
    unread |= {"TRTCACHE_SIGNING_KEY": str(secret), "TRTCACHE_REMOTE": f"{hosts.url}&mode=write"}
    assert command("warm", matrix, "--only", "0", "--require-remote", **unread).code == 0  # it trusts its own
    done = command("warm", matrix, "--only", "0", "--require-remote", **writer)
    assert (done.code, done.out) == (0, "0 built, 1 hit, 0 failed\n")
    assert _states(command("warm", matrix, "--only", "0", "--plan", "--json", **server)) == ["hit"]


def test_a_long_header_of_a_stranger_is_no_hit(
    hosts: Hosts, keys: dict[str, tuple[str, Path]], moto: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not parsed, and the reason is that of any entry that nobody trusted has signed."""
    public, secret = keys["stranger"]
    stranger = {"TRTCACHE_TRUSTED_KEYS": public, "TRTCACHE_SIGNING_KEY": str(secret), "TRTCACHE_REMOTE": ""}
    parts = {"graph": "x" * (entries._MOST_UNTRUSTED_BYTES + 1)}
    built = hosts.host("stranger", **stranger).get_or_build(parts, lambda: b"engine", kind="test")
    assert built.path is not None
    digest = built.key.digest
    put_object(moto, f"{hosts.path}/entries/v1/{digest[:2]}/{digest}.trtc", built.path.read_bytes())
    config = hosts.host("server").config
    remote = entries.RemoteEntries(config.remotes.urls[0], config.remotes, config.trust)
    assert remote.miss_reasons([digest, "0" * 64]) == {
        digest: "untrusted:unknown-key",
        "0" * 64: "absent",
    }


def test_what_a_forbidden_build_says_of_a_remote(command: Callable[..., Result], hosts: Hosts, matrix: Path) -> None:
    """One that is not asked, because no key is trusted, is another problem than a missing engine."""
    nobody = {"TRTCACHE_TRUSTED_KEYS": "", "TRTCACHE_SIGNING_KEY": "", "TRTCACHE_FORBID_BUILD": "1"}
    done = command("warm", matrix, "--cell", "0", **_on(hosts, "server") | nobody)
    assert (done.code, f"({hosts.name}: no-trusted-key" in done.err) == (7, True)


def test_a_remote_that_does_not_answer_is_no_error_of_a_plan(
    command: Callable[..., Result], hosts: Hosts, proxy: FaultProxy, matrix: Path
) -> None:
    """One warning; what is here hits."""
    command("warm", matrix, "--cell", "0", **_on(hosts, "ci"))
    proxy.fault = "reset"
    planned = command("warm", matrix, "--plan", "--json", **_on(hosts, "ci"))
    assert (planned.code, _states(planned)) == (0, ["hit", "hit", "unknown"])
    assert "its entries are not counted as hits" in planned.err

"""``doctor`` and ``stats`` with a remote, and a whole compile through one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.models import Affine
from tests.remote.conftest import fetch, free_port, put_object, report
from trtcache.config.environment import Config
from trtcache.remote import uploads
from trtcache_cli.main import main
from trtcache_cli.remote_probe import examine_remotes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy


def checks(hosts: Hosts, **environ: str) -> list[tuple[str, str]]:
    """Return the status and the finding of each check of a machine's remotes."""
    config = Config.from_environ({**hosts.variables("a"), **environ})
    return [(check.status, check.found) for check in examine_remotes(config)]


def test_doctor_asks_each_remote_once(hosts: Hosts, proxy: FaultProxy) -> None:
    """With one look-up as a compile makes it, and one for the layout; nothing is written."""
    ((status, found),) = checks(hosts)
    assert (status, found.startswith("a miss takes ")) == ("ok", True)
    assert [method for method, _ in proxy.requests] == ["GET", "GET"]
    assert checks(hosts, TRTCACHE_REMOTE=f"{hosts.url}&mode=write")[1][0] == "ok"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("foreign", "a random name returned"),
        ("503", "^busy: GET http://[^ ]+[.]trtc: 503 Service Unavailable$"),
        ("429", "^busy: GET http://[^ ]+[.]trtc: 429 Too Many Requests$"),
        ("hang", "^timeout: GET http://[^ ]+[.]trtc: no answer in time$"),
        ("reset", "(unreachable|cut|error)"),
    ],
)
def test_doctor_fails_on_a_remote_that_fails(hosts: Hosts, proxy: FaultProxy, fault: str, expected: str) -> None:
    """With the reason."""
    proxy.fault = fault
    ((status, found),) = checks(hosts)
    assert status == "bad"
    assert re.search(expected, found)


def test_doctor_says_why_nothing_would_be_used(hosts: Hosts, moto: int) -> None:
    """No such bucket, nobody trusted, no key to sign with, a port that is closed."""
    assert "no-bucket" in checks(hosts, TRTCACHE_REMOTE=hosts.url.replace("engines", "no-such-bucket", 1))[0][1]
    assert "no key is trusted" in checks(hosts, TRTCACHE_TRUSTED_KEYS="")[0][1]
    found = checks(hosts, TRTCACHE_REMOTE=f"{hosts.url}&mode=write", TRTCACHE_SIGNING_KEY="")
    assert [status for status, _ in found] == ["ok", "bad"]
    url = f"s3://b/p?endpoint=http://127.0.0.1:{free_port()}"
    ((status, why),) = checks(hosts, TRTCACHE_REMOTE=url)
    assert (status, why.endswith(".trtc: connection refused")) == ("bad", True)
    put_object(moto, f"{hosts.path}/trtcache-remote.json", b'{"format": 2}')
    assert "format 2" in checks(hosts)[0][1]


def test_doctor_names_the_key_that_is_not_trusted(hosts: Hosts, keys: dict[str, tuple[str, Path]]) -> None:
    """A new key would not help: there is one, which signs here."""
    url = f"{hosts.url}&mode=write"
    environ = {"TRTCACHE_REMOTE": url, "TRTCACHE_SIGNING_KEY": str(keys["stranger"][1])}
    uploads_check = list(examine_remotes(Config.from_environ({**hosts.variables("a"), **environ})))[1]
    assert (uploads_check.status, "stranger" in uploads_check.found) == ("bad", True)
    assert f"trtcache trust add {keys['stranger'][0]}" in uploads_check.advice


def test_stats_have_a_block_for_each_remote(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hits, misses by reason, and uploads."""
    hosts.publish()
    cache = hosts.writer("a")
    fetch(cache)
    fetch(cache, n=1)
    assert uploads.flush(5) == 0
    for name, value in hosts.variables("a").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["stats", "--json"])
    (remote,) = json.loads(capsys.readouterr().out)["remotes"].values()
    assert (remote["hits"], remote["misses"], remote["uploads"]) == (1, {"absent": 1}, 1)
    with pytest.raises(SystemExit):
        main(["stats"])
    shown = capsys.readouterr().out
    assert hosts.url.partition("?")[0] in shown
    assert "uploads" in shown


def test_a_compile_asks_three_times_at_most(hosts: Hosts, proxy: FaultProxy, interpreter: str) -> None:
    """A cold one misses what it needs, and on a new machine the same requests are hits."""
    model, example = Affine().eval(), (torch.randn(3, 4),)
    cold = trtcache.compile(model, example, backend=interpreter, cache=hosts.writer("a"))
    assert uploads.flush(60) == 0
    asked = [method for method, _ in proxy.requests]
    report(f"cold compile: {asked}")
    assert asked.count("GET") <= 3
    assert set(asked) == {"GET", "PUT"}
    proxy.requests.clear()
    warm = trtcache.compile(model, example, backend=interpreter, cache=hosts.host("b"))
    report(f"new machine: {[method for method, _ in proxy.requests]}")
    assert proxy.count("GET") == proxy.count() <= 3
    assert (cold.report.partitions[0].origin, warm.report.partitions[0].origin) == ("", "remote")
    assert "hit (remote)" in str(warm.report)
    torch.testing.assert_close(warm(*example), model(*example))

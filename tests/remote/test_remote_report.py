"""``trtcache report`` of a remote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.remote.conftest import BUCKET, fetch, put_object
from trtcache.remote import uploads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.remote.conftest import Hosts


def test_the_entries_are_the_remotes_and_the_look_ups_this_machines(
    command: Callable[..., Result], hosts: Hosts, moto: int, tmp_path: Path, keys: dict[str, tuple[str, Path]]
) -> None:
    """An entry that no trusted key signed is counted apart, and one that is damaged, too."""
    writer = hosts.writer("ci")
    for n in range(3):
        writer.keep(writer.key({"n": n}, kind="test"), b"x" * 1000, build_s=60.0, name=f"model {n}")
    assert uploads.flush(60) == 0
    reader = hosts.host("a")
    fetch(reader)
    fetch(reader, n=7)
    prefix = hosts.name.removeprefix(f"s3://{BUCKET}/")
    put_object(moto, f"/{BUCKET}/{prefix}/entries/v1/ab/{'ab' * 32}.trtc", b"damaged")
    found = command("report", hosts.name, "--json").json
    assert (found["place"], found["entries"], found["unreadable"], found["untrusted"]) == (hosts.name, 3, 1, 0)
    assert (found["hits"], found["misses"], found["unused"]) == (1, {"absent": 1}, None)
    assert 0 < found["saved_s"] < 60
    assert set(found["models"]) == {"model 0", "model 1", "model 2"}
    assert found["events_of"] == str(hosts.folder / "a")
    stranger = command("report", hosts.name, "--json", TRTCACHE_TRUSTED_KEYS=keys["stranger"][0]).json
    assert stranger["untrusted"] == 3
    path = tmp_path / "report.html"
    assert command("report", hosts.url, "--html", path).code == 0
    page = path.read_text()
    assert hosts.name in page
    assert "does not record reads" in page
    assert "Not used since" not in page

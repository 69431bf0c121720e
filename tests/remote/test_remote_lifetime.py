"""Lifetimes: an entry that is in use is uploaded again before the bucket's rules would delete it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.remote.conftest import fetch
from trtcache.config.remotes import RemoteSettings, RemoteUrl
from trtcache.errors import SettingsError
from trtcache.remote import uploads
from trtcache.remote.bucket import PART_BYTES, Bucket
from trtcache.remote.tier import RemoteTier, object_name

if TYPE_CHECKING:
    from tests.remote.conftest import Hosts
    from tests.remote.fault_proxy import FaultProxy


def modified_ns(hosts: Hosts, digest: str) -> int:
    """Return the time of an entry's object."""
    found = Bucket(RemoteUrl.parse(hosts.url), RemoteSettings()).head(object_name(digest))
    assert found is not None
    return found.modified_ns


@pytest.mark.parametrize("size_bytes", [1000, PART_BYTES + 1], ids=["one part", "parts"])
def test_a_writer_renews_what_it_hits_once(hosts: Hosts, proxy: FaultProxy, size_bytes: int) -> None:
    """After half of the lifetime; the object stays the same, and the next writer finds it young."""
    content = os.urandom(size_bytes)
    entry = hosts.publish(content)
    before_ns = modified_ns(hosts, entry.key.digest)
    renews = {"TRTCACHE_REMOTE": f"{hosts.url}&mode=write&lifetime=60s"}
    fetch(hosts.host("young", **renews))
    assert uploads.flush(60) == 0
    assert modified_ns(hosts, entry.key.digest) == before_ns

    time.sleep(2.1)
    renews["TRTCACHE_REMOTE"] = f"{hosts.url}&mode=write&lifetime=4s"
    proxy.requests.clear()
    assert fetch(hosts.host("first", **renews)).origin == "remote"
    assert uploads.flush(60) == 0
    assert (proxy.count("GET"), proxy.count("HEAD")) == (1, 1)
    assert modified_ns(hosts, entry.key.digest) > before_ns
    proxy.requests.clear()
    assert bytes(fetch(hosts.host("second", **renews)).read()) == content
    assert uploads.flush(60) == 0
    assert [method for method, _ in proxy.requests] == ["GET"]


@pytest.mark.parametrize("parameters", ["", "&lifetime=2s", "&mode=write&lifetime=0s"], ids=["", "reader", "never"])
def test_others_renew_nothing(hosts: Hosts, proxy: FaultProxy, parameters: str) -> None:
    """Readers cannot, and 0 is for buckets without rules."""
    hosts.publish()
    time.sleep(1.1)
    proxy.requests.clear()
    assert fetch(hosts.host("a", TRTCACHE_REMOTE=f"{hosts.url}{parameters}")).origin == "remote"
    assert uploads.flush(60) == 0
    assert [method for method, _ in proxy.requests] == ["GET"]


def test_one_of_several_writers_renews(hosts: Hosts, proxy: FaultProxy) -> None:
    """One that comes too late finds the object young, and sends nothing."""
    entry = hosts.publish()
    time.sleep(3.1)
    renews = {"TRTCACHE_REMOTE": f"{hosts.url}&mode=write&lifetime=6s"}
    late = hosts.host("late", **renews)
    proxy.requests.clear()
    fetch(hosts.host("first", **renews))
    assert uploads.flush(60) == 0
    assert late.store is not None
    fetch(late)
    tier = RemoteTier(late.config.remotes.urls[0], late.config.remotes, late.config.trust)
    uploads.uploader_of(late.store, tier).offer(entry.key.digest, renew=True)  # as if it had hit at the same moment
    assert uploads.flush(60) == 0
    assert (proxy.count("PUT"), proxy.count("HEAD")) == (1, 2)


def test_a_lifetime_has_a_unit(hosts: Hosts) -> None:
    """30 could be days or seconds."""
    with pytest.raises(SettingsError, match="lifetime in TRTCACHE_REMOTE"):
        hosts.host("a", TRTCACHE_REMOTE=f"{hosts.url}&lifetime=30")

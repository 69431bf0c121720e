"""Probes of remotes for ``trtcache doctor``: whether each answers, how fast, and whether builds would be uploaded."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtcache.backends.fitness import Check
from trtcache.errors import CorruptBlobError, RemoteError, SettingsError, StoreError
from trtcache_cli.places import open_remote

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.config.remotes import RemoteUrl

_LATER = "compiles go on without it, and try it again later"


def examine_remotes(config: Config) -> Iterator[Check]:
    """Yield a check for each remote: a look-up of a random key, as a compile makes it, and its format.

    Nothing is written to the remote, except to probe claims where they are on: an object that is created twice, and
    deleted.
    """
    for url in config.remotes.urls:
        yield _look_up(config, url)
        if url == config.remotes.target:
            yield _writing(config, url)
        if url.claims:
            yield _claims(config, url)


def _look_up(config: Config, url: RemoteUrl) -> Check:
    from trtcache.remote.bucket import open_bucket
    from trtcache.remote.connection import REMEDIES, connect
    from trtcache.remote.tier import object_name

    name = f"remote {url.text}"
    breaker = connect(url, config.remotes).breaker
    began_s = time.monotonic()
    try:
        found, _ = open_bucket(url, config.remotes).get(object_name(os.urandom(32).hex()))
        advice = "a proxy or a login page answers instead of the bucket; check the URL and the proxy settings"
        return Check(name, "bad", f"a random name returned {found.size_bytes} bytes", advice)
    except FileNotFoundError:
        # A random name must be missing.
        took_ms = (time.monotonic() - began_s) * 1e3
        breaker.read()  # another process may have opened it
        breaker.note_success()
    except RemoteError as error:
        return _failure(name, error)
    if not config.trust.keys and config.trust.required is not False:
        return Check(name, "bad", f"a miss takes {took_ms:.0f} ms, but no key is trusted", REMEDIES["no-trusted-key"])
    try:
        open_remote(config, url).check_format()
    except RemoteError as error:
        return _failure(name, error)
    except CorruptBlobError as error:
        return Check(name, "bad", str(error), "delete that object, then run 'trtcache init URL'")
    except SettingsError as error:  # it names what is missing
        return Check(name, "bad", str(error), "correct that setting")
    except StoreError as error:
        return Check(name, "bad", str(error), "upgrade trtcache, or use another prefix")
    return Check(name, "ok", f"a miss takes {took_ms:.0f} ms")


def _failure(name: str, error: RemoteError) -> Check:
    from trtcache.remote.connection import REMEDIES

    return Check(name, "bad", f"{error.reason}: {error.why}", REMEDIES.get(error.reason, _LATER))


def _writing(config: Config, url: RemoteUrl) -> Check:
    from trtcache.remote.tier import RemoteTier

    try:
        admission = RemoteTier(url, config.remotes, config.trust).admission
        why, key = admission.why_not_stored(), admission.key
    except SettingsError as error:  # such as a signing key that cannot be read
        return Check("uploads", "bad", f"nothing is uploaded: {error}", "correct that setting")
    if why:
        advice = "trtcache trust keygen NAME; other machines add the key with trtcache trust add"
        if key is not None:  # it is not trusted here, or not any more
            advice = f"if its entries may be used here: trtcache trust add {key.public} (or TRTCACHE_TRUSTED_KEYS)"
        return Check("uploads", "bad", f"nothing is uploaded: {why}", advice)
    return Check("uploads", "ok", f"builds of {config.remotes.min_build_s:g} s and longer go to {url.text}")


def _claims(config: Config, url: RemoteUrl) -> Check:
    from trtcache.remote.claims import Claims
    from trtcache.remote.connection import connect

    try:
        refuses = Claims(connect(url, config.remotes)).server_refuses_duplicates(again=True)
    except RemoteError as error:
        return Check(
            "claims", "bad", f"{error.reason}: {error.why}", "several hosts may build the same entry until this works"
        )
    if not refuses:
        advice = "remove claims=1, or use a server with conditional requests (If-None-Match: *)"
        return Check("claims", "bad", "the server accepts a second create of one name", advice)
    return Check("claims", "ok", "only one host builds a missing entry")

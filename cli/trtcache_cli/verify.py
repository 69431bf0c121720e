"""``trtcache verify``: verify every byte."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.remotes import RemoteUrl
from trtcache.config.units import format_size
from trtcache.errors import CorruptBlobError, FormatVersionError, RemoteError, UnknownKeyError
from trtcache.store.format import LARGE_BYTES
from trtcache.store.layers import Layers
from trtcache_cli.keys import KeyType
from trtcache_cli.output import bytes_bar, entries_text, note, print_json, print_tsv, spinner
from trtcache_cli.places import is_url, open_remote, refuse_options
from trtcache_cli.session import Session, examples, session_options

if TYPE_CHECKING:
    from trtcache.remote.entries import RemoteEntries
    from trtcache.store.disk import DiskStore
    from trtcache.store.reader import EntryStat

DAMAGED = CorruptBlobError.exit_code
UNREADABLE = "unreadable"


@frozen_dataclass
class Finding:
    """An entry that failed verification, the reason, and its store."""

    digest: str
    reason: str
    why: str
    layer: str


@click.command(
    epilog=examples("trtcache verify", "trtcache verify --repair --json", "trtcache verify s3://engines/main")
)
@click.argument("keys", nargs=-1, type=KeyType(), metavar="[URL] [KEY]...")
@click.option("--repair", is_flag=True, help="Quarantine damaged entries, and rebuild the index.")
@session_options
def verify(session: Session, keys: tuple[str, ...], repair: bool) -> int:
    """Verify every byte of all entries, or of those named, and their signatures.

    Exits with 4 if something is damaged, and with 0 once --repair has quarantined it: a damaged entry is rebuilt when
    it is needed again. Unreadable entries count as damaged, and are left in place. Where signatures are required,
    untrusted entries are reported, but do not count as damaged.

    With --repair only the cache directory is verified, not the layers below it.

    URL: download the entries of a remote instead, and verify them; nothing is stored.
    """
    if keys and is_url(keys[0]):
        return verify_remote(session, RemoteUrl.parse(keys[0], "URL"), keys[1:], repair=repair)
    stores = (session.writable_store("repair"),) if repair else session.layers().disks
    wanted = {Layers(None, stores).resolve(key)[1] for key in keys}
    each = [(store, [stored for stored in store.scan() if not wanted or stored.digest in wanted]) for store in stores]
    findings, untrusted = [], []
    with bytes_bar("verifying", sum(stored.file_bytes for _, files in each for stored in files)) as advance:
        for store, files in each:
            damaged = check(store, files, advance)
            untrusted += _find_untrusted(store, files, {finding.digest for finding in damaged})
            findings += damaged
    files = [stored for _, files in each for stored in files]
    if not repair:
        report(session, files, findings, untrusted)
        return DAMAGED if findings else 0
    from trtcache.store.catalog import rebuild

    findings, is_rebuilt = _repair(stores[0], findings), False
    try:
        rebuild(stores[0])
        is_rebuilt = True
    finally:  # what was quarantined is reported also if the index cannot be rebuilt
        report(session, files, findings, untrusted, quarantined=True, repaired=is_rebuilt)
    return DAMAGED if any(finding.reason == UNREADABLE for finding in findings) else 0


def check(store: DiskStore, files: Sequence[EntryStat], advance: Callable[[int], None]) -> list[Finding]:
    """Return the damaged and unreadable entries among ``files``; call ``advance`` with the bytes of each file."""
    findings = []
    for stored in files:
        try:
            store.check(stored.digest)
        except UnknownKeyError:
            pass  # removed since the scan
        except CorruptBlobError as error:
            findings.append(Finding(stored.digest, error.reason, error.why, str(store.root)))
        except OSError as error:
            why = error.strerror or str(error)
            findings.append(Finding(stored.digest, UNREADABLE, why, str(store.root)))
        except FormatVersionError as error:
            note(str(error))
        advance(stored.file_bytes)
    return findings


def _find_untrusted(store: DiskStore, files: Sequence[EntryStat], damaged: Collection[str]) -> list[Finding]:
    """Return the intact entries that a store which requires signatures does not accept."""
    if not store.admission.required:
        return []
    findings = []
    for stored in files:
        if stored.digest not in damaged:
            with suppress(UnknownKeyError, FormatVersionError):
                verdict = store.verdict(stored.digest)
                if verdict.reason is not None:
                    reason, signer = f"untrusted:{verdict.reason}", verdict.signer or ""
                    findings.append(Finding(stored.digest, reason, signer, str(store.root)))
    return findings


def verify_remote(session: Session, url: RemoteUrl, keys: Sequence[str], *, repair: bool) -> int:
    """Verify the entries of a remote, or those whose key starts with one of ``keys``. 32 are downloaded at a time."""
    refuse_options(url, repair=repair)
    remote = open_remote(session.config(), url)
    prefixes = tuple(key.lower().removeprefix("b3:") for key in keys)
    with spinner("listing"):
        files = [stored for stored in remote.scan() if not prefixes or stored.digest.startswith(prefixes)]
    for prefix in prefixes:
        if not any(stored.digest.startswith(prefix) for stored in files):
            raise UnknownKeyError(prefix)
    findings: list[Finding] = []
    untrusted: list[Finding] = []

    with bytes_bar("verifying", sum(stored.file_bytes for stored in files)) as advance:
        for stored, found in _check_many(remote, files):
            if found is not None:
                (untrusted if found.reason.startswith("untrusted:") else findings).append(found)
            advance(stored.file_bytes)
    report(session, files, findings, untrusted)
    return DAMAGED if findings else 0


def _check_many(remote: RemoteEntries, files: Sequence[EntryStat]) -> Iterator[tuple[EntryStat, Finding | None]]:
    """Check many entries at once, and large ones one by one, as each is stored in the temporary directory."""
    from trtcache.store.parallel import map_in_threads
    from trtcache.store.sync import REMOTE_THREADS

    check_one = partial(_check_remote, remote)
    yield from map_in_threads(
        check_one, [stored for stored in files if stored.file_bytes < LARGE_BYTES], REMOTE_THREADS
    )
    yield from map_in_threads(check_one, [stored for stored in files if stored.file_bytes >= LARGE_BYTES], 1)


def _check_remote(remote: RemoteEntries, stored: EntryStat) -> Finding | None:
    url = remote.url.text
    try:
        verdict = remote.verify(stored.digest)
    except UnknownKeyError:
        return None  # removed since the listing
    except CorruptBlobError as error:
        return Finding(stored.digest, error.reason, error.why, url)
    except FormatVersionError as error:
        note(str(error))
        return None
    except RemoteError as error:
        if error.reason not in ("cut", "archived"):  # other errors concern the whole remote
            raise
        return Finding(stored.digest, UNREADABLE, error.why, url)
    if verdict.reason is None or not remote.admission.required:
        return None
    return Finding(stored.digest, f"untrusted:{verdict.reason}", verdict.signer or "", url)


def _repair(store: DiskStore, findings: Sequence[Finding]) -> list[Finding]:
    """Quarantine damaged entries; return the findings, as unreadable if the entry has to stay."""
    after = []
    for finding in findings:
        after.append(finding)
        if finding.reason == UNREADABLE:  # it may be intact, and another user's
            continue
        try:
            store.check(finding.digest)  # another process may have replaced it meanwhile
        except CorruptBlobError:
            try:
                store.quarantine(finding.digest, finding.reason)
            except OSError as error:
                why = f"{finding.reason}; it cannot be quarantined: {error.strerror}"
                after[-1] = replace(finding, reason=UNREADABLE, why=why)
        except (UnknownKeyError, FormatVersionError, OSError):
            continue
    return after


def report(
    session: Session,
    files: Sequence[EntryStat],
    findings: Sequence[Finding],
    untrusted: Sequence[Finding],
    *,
    quarantined: bool = False,
    repaired: bool = False,
) -> None:
    """Print what was verified, what was found, and whether it is ``repaired``: quarantined, and the index rebuilt."""
    checked_bytes = sum(stored.file_bytes for stored in files)
    if session.as_json:
        damaged = [
            {"key": finding.digest, "reason": finding.reason, "why": finding.why, "layer": finding.layer}
            for finding in findings
        ]
        others = [
            {"key": finding.digest, "reason": finding.reason, "signer": finding.why or None, "layer": finding.layer}
            for finding in untrusted
        ]
        sums = {"checked": len(files), "checked_bytes": checked_bytes, "repaired": repaired}
        print_json({**sums, "damaged": damaged, "untrusted": others})
        return
    print_tsv((finding.digest, finding.reason, finding.why) for finding in [*findings, *untrusted])
    others_too = f", {len(untrusted):,} not trusted" if untrusted else ""
    unread = sum(finding.reason == UNREADABLE for finding in findings)
    done = " (quarantined)" if quarantined and len(findings) > unread else ""
    unread_too = f", {unread:,} unreadable" if unread else ""
    entries = f"{entries_text(len(files))}, {format_size(checked_bytes)}"
    note(f"{entries}: {len(findings) - unread:,} damaged{done}{unread_too}{others_too}")
    if repaired:
        note("the index was rebuilt")

"""``--require-remote``: a command fails if a look-up in a remote or an upload failed, for strict CI."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from trtcache.errors import ReadOnlyError, RemoteError, SettingsError
from trtcache.store.events import read_sums, since
from trtcache_cli.output import complain

if TYPE_CHECKING:
    from collections.abc import Collection

    from trtcache.config.environment import Config
    from trtcache.store.disk import DiskStore

EXIT_REMOTE_FAILED: Final = 4

_DEFINITE = ("absent", "archived", "format", "untrusted")
"""Reasons that the remote itself gave: asking again would give the same."""


def open_required(config: Config) -> DiskStore:
    """Check before a command that look-ups and uploads can succeed, and return the store whose event log records them.

    Raises:
        SettingsError: no remote is set.
        ReadOnlyError: the cache directory cannot be written, so failed look-ups could not be recorded.
        RemoteError: what this process builds would not be uploaded.
    """
    from trtcache.remote.tier import RemoteTier
    from trtcache.store.disk import DiskStore

    if not config.remotes.urls or config.disable:
        raise SettingsError("--require-remote", "no remote is set; see TRTCACHE_REMOTE")
    store = DiskStore.open(config.root, readonly=config.readonly, trust=config.trust)
    if not store.writable:
        raise ReadOnlyError(str(store.root), "log the look-ups of --require-remote")
    target = config.remotes.target
    if target is not None and (why := RemoteTier(target, config.remotes, config.trust).admission.why_not_stored()):
        raise RemoteError(target.text, "unsigned", f"nothing would be uploaded: {why}; see 'trtcache trust'")
    return store


def retired_logs(store: DiskStore) -> frozenset[str]:
    """Return the names of the event logs of which only sums are left, to pass to ``report_failures`` afterwards."""
    return frozenset(summed.log for summed in read_sums(store.events.directory))


def remote_failures(store: DiskStore, since_ns: int, retired: Collection[str] = ()) -> Counter[str]:
    """Count what failed since a time, by event and reason, in all processes that use the store.

    Of a log that became a sum since then, all failures of the day count: their times are not known any more.

    Args:
        store: the store.
        since_ns: the time.
        retired: the logs that were sums at that time.
    """
    logs = store.events.logs()  # before the sums: a log that is retired meanwhile is in both
    sums = [summed for summed in read_sums(store.events.directory) if summed.log not in retired]
    failures: Counter[str] = Counter()
    for (_, event, text, _), total in since(logs, sums, since_ns).items():
        reason = text.partition(" ")[2].partition(":")[0]
        if event == "upload_failed":
            failures[f"upload: {reason}"] += total.count
        elif event == "remote_skip" or (event == "remote_miss" and reason not in _DEFINITE):
            failures[f"look-up: {reason}"] += total.count
    return failures


def report_failures(
    store: DiskStore, since_ns: int, retired: Collection[str], waited: Collection[str] | None = None
) -> int:
    """Print what failed since a time; return the exit code.

    Args:
        store: the store.
        since_ns: the time.
        retired: what ``retired_logs`` returned at that time.
        waited: the entries that waited in the outbox at that time, of a command whose children upload: they do not
            count. Without them, only uploads that this process has offered count.
    """
    failures = remote_failures(store, since_ns, retired)
    waiting = set(store.outbox.digests()).difference(waited or ())
    if waited is None:
        from trtcache.remote.uploads import own_uploads

        offered, reasons = own_uploads()
        waiting &= offered
        failures = Counter({what: count for what, count in failures.items() if not what.startswith("upload: ")})
        failures.update({f"upload: {reason}": count for reason, count in reasons.items()})
    if waiting:
        failures["upload: still waiting in the outbox"] = len(waiting)
    if not failures:
        return 0
    words = ", ".join(f"{what} ({count})" for what, count in failures.most_common())
    complain(f"trtcache: --require-remote: failed {words}")
    return EXIT_REMOTE_FAILED

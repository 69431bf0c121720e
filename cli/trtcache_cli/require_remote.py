"""``--require-remote``: a command fails if a look-up in a remote or an upload failed, for strict CI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from trtcache.config.units import format_count
from trtcache.errors import ReadOnlyError, RemoteError, SettingsError
from trtcache.store.events import read_sums, since
from trtcache_cli.output import complain

if TYPE_CHECKING:
    from trtcache.config.environment import Config
    from trtcache.store.disk import DiskStore

EXIT_REMOTE_FAILED: Final = 4

_DEFINITE = ("absent", "archived", "format", "untrusted")
"""Reasons that are answers, not failures: asking again gives the same."""


def require_usable_remote(config: Config) -> DiskStore:
    """Check before a command that look-ups and uploads can succeed, and return the store whose event log records them.

    Raises:
        SettingsError: no remote is set.
        ReadOnlyError: the cache directory cannot be written, so failed look-ups could not be recorded.
        RemoteError: what this process builds would not be uploaded.
    """
    from trtcache.remote.tier import RemoteTier
    from trtcache.store.disk import DiskStore

    if config.disable:
        raise SettingsError("--require-remote", "the cache is disabled (TRTCACHE_DISABLE=1)")
    if not config.remotes.urls:
        raise SettingsError("--require-remote", "no remote is set; see TRTCACHE_REMOTE")
    store = DiskStore.open(config.root, readonly=config.readonly, trust=config.trust)
    if not store.writable:
        raise ReadOnlyError(str(store.root), "log the look-ups of --require-remote")
    target = config.remotes.target
    if target is not None and (why := RemoteTier(target, config.remotes, config.trust).admission.why_not_stored()):
        raise RemoteError(target.text, "unsigned", f"nothing would be uploaded: {why}; see 'trtcache trust'")
    return store


def summed_logs(store: DiskStore) -> frozenset[str]:
    """Return the names of event logs that are already reduced to daily sums.

    Take it before the command; ``report_failures`` leaves these out.
    """
    return frozenset(log_sum.log for log_sum in read_sums(store.events.directory))


def remote_failures(store: DiskStore, since_ns: int, summed: Collection[str] = ()) -> Counter[str]:
    """Count what failed since a time, by event and reason, in all processes that use the store.

    A log summed meanwhile has no times left, so all its failures of that day are counted.

    Args:
        store: the store.
        since_ns: the time.
        summed: the logs that were sums at that time.
    """
    logs = store.events.logs()  # before the sums: a log that is summed meanwhile is in both
    sums = [log_sum for log_sum in read_sums(store.events.directory) if log_sum.log not in summed]
    failures: Counter[str] = Counter()
    for (_, event, text, _), total in since(logs, sums, since_ns).items():
        reason = text.partition(" ")[2].partition(":")[0]
        if event == "upload_failed":
            failures[f"upload: {reason}"] += total.count
        elif event == "remote_skip" or (event == "remote_miss" and reason not in _DEFINITE):
            failures[f"look-up: {reason}"] += total.count
    return failures


def report_failures(
    store: DiskStore, since_ns: int, summed: Collection[str], waited: Collection[str] | None = None
) -> int:
    """Print what failed since a time; return the exit code.

    Args:
        store: the store.
        since_ns: the time.
        summed: what ``summed_logs`` returned at that time.
        waited: the entries that waited in the outbox at that time, of a command whose children upload: they do not
            count. Without them, only uploads that this process has offered count.
    """
    failures = remote_failures(store, since_ns, summed)
    waiting = set(store.outbox.digests()).difference(waited or ())
    if waited is None:
        from trtcache.remote.uploads import own_uploads

        offered, reasons = own_uploads(store)
        waiting &= offered
        failures = Counter({what: count for what, count in failures.items() if not what.startswith("upload: ")})
        failures.update({f"upload: {reason}": count for reason, count in reasons.items()})
    parts = []
    for failure, count in failures.most_common():
        what, _, reason = failure.partition(": ")
        parts.append(f"{format_count(count, what)} failed ({reason})")
    if waiting:
        verb = "is" if len(waiting) == 1 else "are"
        parts.append(f"{format_count(len(waiting), 'upload')} {verb} still in the outbox")
    if not parts:
        return 0
    complain(f"trtcache: --require-remote: {', '.join(parts)}")
    return EXIT_REMOTE_FAILED

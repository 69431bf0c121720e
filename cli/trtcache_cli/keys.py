"""KEY arguments: any unambiguous prefix of a digest, with shell completion from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from trtcache_cli.session import Session

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore

SHORT_DIGITS = 16
"""Number of digits of a key that are shown: 64 bits, unambiguous in any store that fits on a disk."""

_MAX_COMPLETIONS = 200


class KeyType(click.ParamType[str]):
    """A prefix of an entry's key, with or without ``b3:``. The command resolves it."""

    name = "key"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002  # click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the keys that start with the typed text, with kind and name as their description."""
        from trtcache.errors import TrtcacheError

        try:
            store = ctx.ensure_object(Session).store()
            return _completions(store, incomplete)
        except (TrtcacheError, OSError):
            return []


class LowerKeyError(click.ClickException):
    """The entry of a key is in a lower layer only, which is read-only."""

    exit_code = 5


def resolve_upper(session: Session, store: DiskStore, key: str) -> str:
    """Return the digest of a key in the cache directory, for a command that changes the entry.

    Raises:
        LowerKeyError: a lower layer has the entry.
        UnknownKeyError: no store has it.
        AmbiguousKeyError: several keys start with it.
    """
    from trtcache.errors import UnknownKeyError

    try:
        return store.resolve(key)
    except UnknownKeyError:
        lower, digest = session.layers().resolve(key)
        raise LowerKeyError(f"{digest[:SHORT_DIGITS]} is in the lower layer {lower.root}, which is only read") from None


def _completions(store: DiskStore, incomplete: str) -> list[CompletionItem]:
    from trtcache.store.record import INDEX_NAME, read_rows

    prefix = incomplete.removeprefix("b3:")
    typed = incomplete.removesuffix(prefix)  # zsh and fish drop what does not begin with all of the typed text
    rows = read_rows(store.index_root / INDEX_NAME) or {}
    digests = sorted(stored.digest for stored in store.scan() if stored.digest.startswith(prefix))
    items = []
    for digest in digests[:_MAX_COMPLETIONS]:
        _, kind, name, *_ = rows.get(digest, (digest, "", None))
        shown = digest[: max(SHORT_DIGITS, len(prefix))]
        items.append(CompletionItem(typed + shown, help=" ".join(filter(None, (kind, name)))))
    return items

"""``trtcache init``: create a store, for one user or for a group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache_cli.output import note, print_json
from trtcache_cli.session import Session, examples, pass_session, session_options

if TYPE_CHECKING:
    from trtcache.store.disk import DiskStore


@click.command(epilog=examples("trtcache init ~/engines", "trtcache init --shared --group builders /srv/engines"))
@click.argument("path", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--shared", is_flag=True, help="Allow the members of a group to write to it, regardless of their umask.")
@click.option("--group", help="The group of a shared store, by name or number.")
@session_options
@pass_session
def init(session: Session, path: Path | None, shared: bool, group: str | None) -> None:
    """Create a store in a missing or empty directory; by default in the one printed by 'trtcache dir'.

    A private store is accessible to its owner only. Entries of a shared store are ignored until you trust a signing
    key: see 'trtcache trust'.
    """
    if shared != (group is not None):
        raise click.UsageError("a shared store needs a group: use --shared and --group together")
    root = session.config().root if path is None else path.absolute()
    store = _make(root, group)
    if session.as_json:
        print_json({"root": str(store.root), "shared": store.shared})
    else:
        click.echo(str(store.root))
    if store.shared:
        note("entries here are ignored until you trust their signing key: trtcache trust keygen, trtcache trust add")


def _make(root: Path, group: str | None) -> DiskStore:
    from trtcache.store.disk import DiskStore
    from trtcache.store.root import group_id, share

    if group is not None:
        share(root, group_id(group))
    return DiskStore.open(root)

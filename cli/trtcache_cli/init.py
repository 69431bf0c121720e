"""``trtcache init``: make a store, for one user or for a group."""

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
@click.option("--shared", is_flag=True, help="Let the members of a group write to it, whatever their umask.")
@click.option("--group", help="The group of a shared store, by name or number.")
@session_options
@pass_session
def init(session: Session, path: Path | None, shared: bool, group: str | None) -> None:
    """Make a store in a directory that is missing or empty; by default in the one that 'trtcache dir' prints.

    A private store is its user's alone. The entries of a shared one count for nobody until he has said whose
    signatures he trusts: see 'trtcache trust'.
    """
    if shared != (group is not None):
        raise click.UsageError("a shared store is a group's: give --shared and --group together")
    root = session.config().root if path is None else path.absolute()
    store = _make(root, group)
    if session.as_json:
        print_json({"root": str(store.root), "shared": store.shared})
    else:
        click.echo(str(store.root))
    if store.shared:
        note(
            "entries count here when they are signed by a key that you trust: trtcache trust keygen, trtcache trust add"
        )


def _make(root: Path, group: str | None) -> DiskStore:
    from trtcache.store.disk import DiskStore
    from trtcache.store.sharing import group_id, share

    if group is not None:
        share(root, group_id(group))
    return DiskStore.open(root)

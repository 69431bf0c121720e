"""``trtcache init``: create a store, for one user or for a group, or prepare a remote."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtcache.config.remotes import RemoteUrl
from trtcache_cli.lifecycle import how_to_apply, lifecycle_rules
from trtcache_cli.output import note, print_json
from trtcache_cli.places import PlaceType, open_remote, refuse_options
from trtcache_cli.session import Session, examples, session_options


@click.command(
    epilog=examples(
        "trtcache init ~/engines",
        "trtcache init --shared --group builders /srv/engines",
        "trtcache init s3://engines/main > lifecycle.json",
    )
)
@click.argument("path", type=PlaceType(), required=False, metavar="[PATH_OR_URL]")
@click.option("--shared", is_flag=True, help="Allow the members of a group to write to it, regardless of their umask.")
@click.option("--group", help="The group of a shared store, by name or number.")
@session_options
def init(session: Session, path: Path | RemoteUrl | None, shared: bool, group: str | None) -> None:
    """Create a store in a missing or empty directory; by default in the one printed by 'trtcache dir'.

    A private store is accessible to its owner only. Entries of a shared store are ignored until you trust a signing
    key: see 'trtcache trust'.

    URL: write the file that names the layout into a remote (s3://bucket/prefix), and print lifecycle rules for its
    bucket: entries expire by age, claims of builds and parts of interrupted uploads after a day.
    """
    if isinstance(path, RemoteUrl):
        refuse_options(path, shared=shared, group=group)
        _prepare_remote(session, path)
        return
    if shared != (group is not None):
        raise click.UsageError("a shared store needs a group: use --shared and --group together")
    from trtcache.store.disk import DiskStore
    from trtcache.store.root import group_id, share

    root = session.config().root if path is None else path.absolute()
    if group is not None:
        share(root, group_id(group))
    store = DiskStore.open(root)
    if session.as_json:
        print_json({"root": str(store.root), "shared": store.shared})
    else:
        click.echo(str(store.root))
    if store.shared:
        note("entries here are ignored until you trust their signing key: trtcache trust keygen, trtcache trust add")


def _prepare_remote(session: Session, url: RemoteUrl) -> None:
    remote = open_remote(session.config(), url)
    created = remote.prepare()
    rules = lifecycle_rules(remote.url)
    if session.as_json:
        print_json({"url": url.text, "created": created, "lifecycle": rules, "apply": how_to_apply(remote.url)})
        return
    note(f"{url.text} {'is prepared' if created else 'was prepared before'}")
    if rules is None:
        note(f"a web folder has no lifecycle rules; to remove old entries on its server: {how_to_apply(remote.url)}")
        return
    click.echo(json.dumps(rules, indent=2))
    note(
        f"to set these lifecycle rules, saved as lifecycle.json, in place of all others of the bucket:\n"
        f"{how_to_apply(remote.url)}"
    )

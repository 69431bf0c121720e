"""``trtcache dir``: print the cache directory."""

from __future__ import annotations

import click

from trtcache_cli.output import print_json
from trtcache_cli.session import Session, examples, session_options


@click.command("dir", epilog=examples('du -sh "$(trtcache dir)"'))
@session_options
def print_dir(session: Session) -> None:
    """Print the cache directory, even if it does not exist."""
    config = session.config()
    root = config.root
    if session.as_json:
        print_json({"root": str(root), "exists": root.is_dir(), "lower": list(map(str, config.lower))})
    else:
        click.echo(str(root))

"""``trtcache diff``: explain how two entries differ."""

from __future__ import annotations

import click

from trtcache.keys.explain import explain, stored_graph
from trtcache_cli.differences import print_differences
from trtcache_cli.keys import KeyType
from trtcache_cli.output import note, print_json
from trtcache_cli.session import Session, examples, session_options


@click.command(epilog=examples("trtcache diff 3fa9 b771", "trtcache diff --json 3fa9 b771 | jq -r .differences[].text"))
@click.argument("first", type=KeyType(), metavar="KEY")
@click.argument("second", type=KeyType(), metavar="KEY")
@session_options
def diff(session: Session, first: str, second: str) -> None:
    """Explain how the second entry differs from the first: causes first, without their consequences."""
    layers = session.layers()
    (one, one_digest), (other, other_digest) = layers.resolve(first), layers.resolve(second)
    before, after = one.header(one_digest), other.header(other_digest)
    old, new = stored_graph(one, before), stored_graph(other, after)
    graphs = None if old is None or new is None else (old, new)
    found = explain(before.key.document, after.key.document, graphs)
    if session.as_json:
        keys = {"first": before.key.digest, "second": after.key.digest}
        print_json({**keys, "differences": [difference.as_json() for difference in found]})
    elif found:
        print_differences(found)
    else:
        note("no difference")

"""``trtcache adopt``: import engines from another tool's cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtcache.config.units import format_size
from trtcache.integrations.foreign_caches.adoption import TOOLS, Adopted, AdoptionPlan, plan_adoption
from trtcache_cli.keys import SHORT_DIGITS
from trtcache_cli.output import bytes_bar, note, on_terminal, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.sync import NOT_ARRIVED

if TYPE_CHECKING:
    from trtcache.integrations.foreign_caches.layouts import Find

_HEADER = ("FILE", "WHAT", "SIZE", "MADE BY", "FOR", "STATE", "WHY")
_LONGEST_NAME = 48
_REFUSED = ("damaged", "unsafe", "changed")


@click.command(
    epilog=examples(
        "trtcache adopt torch-tensorrt /tmp/torch_tensorrt_engine_cache --dry-run",
        "trtcache adopt onnxruntime ./trt_cache --pin",
    )
)
@click.argument("tool", type=click.Choice(list(TOOLS)))
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@click.option("--pin", is_flag=True, help="Pin the imported entries.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list the directory.")
@session_options
def adopt(session: Session, tool: str, directory: Path, pin: bool, dry_run: bool) -> int | None:
    """List another tool's engine cache, and import its engines. Nothing is unpickled or run.

    The key of an imported entry records its origin. No compile looks it up, because such a cache does not record all
    that an engine was built for. A plan can run code when it is loaded: import only engines that you would run. DIR is
    not modified. The exit code is 4 if a file is damaged, unsafe or was changed meanwhile.
    """
    with bytes_bar("reading", _file_bytes(directory)) as advance:
        plan = plan_adoption(tool, directory.absolute(), advance=advance)
    done: tuple[Adopted, ...] = ()
    if not dry_run and plan.engines:
        config, store = session.config(), session.writable_store("import engines")
        with bytes_bar("importing", sum(find.file_bytes for find in plan.engines)) as advance:
            done = plan.execute(
                store,
                pin=pin,
                max_size_bytes=config.max_size_bytes,
                max_entries=config.max_entries,
                advance=advance,
            )
    states = {one.find.name: one for one in done}
    if session.as_json:
        finds = [_document(plan, find, states) for find in plan.finds]
        print_json({"tool": tool, "directory": str(directory.absolute()), "dry_run": dry_run, "finds": finds})
    else:
        _print(plan, states)
        _remark(plan, done, dry_run=dry_run)
    return NOT_ARRIVED if any(_state(find, states)[0] in _REFUSED for find in plan.finds) else None


def _file_bytes(directory: Path) -> int:
    """Return the total size of the files to examine."""
    total_bytes = 0
    for path in chain(directory.glob("*"), directory.glob("*/*")):
        with suppress(OSError):  # the tool may be running, and remove its files
            total_bytes += path.lstat().st_size
    return total_bytes


def _document(plan: AdoptionPlan, find: Find, states: Mapping[str, Adopted]) -> dict[str, object]:
    state, why = _state(find, states)
    return {
        "file": find.name,
        "what": find.what,
        "file_bytes": find.file_bytes,
        "size_bytes": find.span.size_bytes if find.span else None,
        "library": find.plan.library if find.plan else None,
        "version": find.plan.version if find.plan else None,
        "capabilities": list(find.capabilities),
        "told_by": find.told_by or None,
        "digest": str(find.digest) if find.digest else None,
        "state": state,
        "why": why or None,
        "key": plan.key(find).digest if find.is_importable else None,
    }


def _state(find: Find, states: Mapping[str, Adopted]) -> tuple[str, str]:
    done = states.get(find.name)
    return (find.state, find.why) if done is None else (done.state, done.why or find.why)


def _print(plan: AdoptionPlan, states: Mapping[str, Adopted]) -> None:
    rows = [_row(find, states) for find in plan.finds]
    if not on_terminal():
        print_tsv(rows)
    elif rows:
        print_table(_HEADER, [(_short(name), *rest) for name, *rest in rows])


def _row(find: Find, states: Mapping[str, Adopted]) -> tuple[str, ...]:
    made_by = f"{find.plan.library} {find.plan.version or '?'}" if find.plan else "-"
    made_for = ",".join(f"sm_{capability.replace('.', '')}" for capability in find.capabilities)
    state, why = _state(find, states)
    return (find.name, find.what, format_size(find.file_bytes), made_by, made_for or "-", state, why or "-")


def _short(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:SHORT_DIGITS]}...{name[-(_LONGEST_NAME - SHORT_DIGITS - 3) :]}"


def _remark(plan: AdoptionPlan, done: Sequence[Adopted], *, dry_run: bool) -> None:
    engines = len(plan.engines)
    what = f"{engines:,} of {len(plan.finds):,} files are engines that can be adopted"
    if not dry_run:
        counts = Counter(one.state for one in done)
        what = f"{what}: {counts['adopted']:,} adopted, {counts['there']:,} already present"
        if others := len(done) - counts["adopted"] - counts["there"]:
            what = f"{what}, {others:,} not adopted"
    note(what)

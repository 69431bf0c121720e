"""The last passes: those of a backend or setting, and third-party ones from the entry point ``trtcache.passes``.

An entry point's name is its pass's name, and its value a pass class without arguments. These passes run after ours,
sorted by name, on every program, and are in its key.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trtcache.errors import PassError
from trtcache.lowering.pipeline import Pipeline, default_pipeline
from trtcache.lowering.rewrites.autocast import Autocast
from trtcache.lowering.rewrites.casts import Casts
from trtcache.lowering.rewrites.common_subexpressions import CommonSubexpressions
from trtcache.lowering.rewrites.dead_code import DeadCode
from trtcache.lowering.rewrites.unpack import Unpack

if TYPE_CHECKING:
    from collections.abc import Collection
    from importlib.metadata import EntryPoint

    from trtcache.lowering.passes import Pass


def third_party(points: Collection[EntryPoint], ours: Collection[str]) -> tuple[Pass, ...]:
    """Return the passes of entry points, sorted by name.

    Args:
        points: entry points.
        ours: names that are taken.

    Raises:
        PassError: two distributions provide a pass of one name, or of one of ours (the message names both owners), or
            a pass cannot be imported or instantiated, or its name differs from its entry point's.
    """
    owners = dict.fromkeys(ours, "trtcache")
    for point in points:
        owner = point.dist.name if point.dist else point.value
        if point.name in owners:
            raise PassError(point.name, (), f"offered by both {owners[point.name]} and {owner}; remove one")
        owners[point.name] = owner
    return tuple(_load_pass(point, owners[point.name]) for point in sorted(points, key=lambda point: point.name))


def last_pipeline(
    points: Collection[EntryPoint], unpack: Collection[str], autocast: Autocast | None = None
) -> Pipeline:
    """Return the passes that run after ours; empty if there are none.

    Args:
        points: the entry points of this environment.
        unpack: operators that the backend wants decomposed further.
        autocast: the pass of the caller's settings, or None.

    Raises:
        PassError: see ``third_party``.
    """
    ours: tuple[Pass, ...] = (autocast, Casts()) if autocast else ()
    ours += (Unpack(tuple(sorted(unpack))),) if unpack else ()
    taken = {one.name for one in (*default_pipeline().passes, Unpack(), Autocast())}
    passes_ = (*ours, *third_party(points, taken))
    return Pipeline((*passes_, CommonSubexpressions(), DeadCode()) if passes_ else ())


def _load_pass(point: EntryPoint, owner: str) -> Pass:
    try:
        made: Pass = getattr(import_module(point.module), point.attr)()
    except Exception as error:
        raise PassError(point.name, (), f"{point.value} of {owner} cannot be loaded: {error}") from error
    if made.name != point.name:
        raise PassError(point.name, (), f"{point.value} of {owner} has the name {made.name!r}")
    return made

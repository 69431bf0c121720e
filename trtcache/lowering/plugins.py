"""The last passes: what a backend asks for, and passes of other distributions by the entry point ``trtcache.passes``.

An entry point's name is its pass's name, and its value a class of a pass that takes no arguments. The passes run after
ours, in the order of their names, over every program, and stand in its key.
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
    """Return the passes behind entry points, in the order of their names.

    Args:
        points: entry points.
        ours: names that are taken.

    Raises:
        PassError: two distributions offer a pass of one name, or one of ours (the message names both owners), or a
            pass cannot be imported, made or is called otherwise than its entry point.
    """
    owners = dict.fromkeys(ours, "trtcache")
    for point in points:
        owner = point.dist.name if point.dist else point.value
        if point.name in owners:
            raise PassError(point.name, (), f"offered by both {owners[point.name]} and {owner}; remove one")
        owners[point.name] = owner
    return tuple(_made(point, owners[point.name]) for point in sorted(points, key=lambda point: point.name))


def last_pipeline(
    points: Collection[EntryPoint], unpack: Collection[str], autocast: Autocast | None = None
) -> Pipeline:
    """Return the passes that run when our own have brought equal programs to one form; none if nobody asks for any.

    Args:
        points: the entry points of this environment.
        unpack: operators that the backend wants unpacked.
        autocast: the pass that the caller's settings ask for.

    Raises:
        PassError: as ``third_party`` does.
    """
    ours: tuple[Pass, ...] = (autocast, Casts()) if autocast else ()
    ours += (Unpack(tuple(sorted(unpack))),) if unpack else ()
    taken = {one.name for one in (*default_pipeline().passes, Unpack(), Autocast())}
    asked = (*ours, *third_party(points, taken))
    return Pipeline((*asked, CommonSubexpressions(), DeadCode()) if asked else ())


def _made(point: EntryPoint, owner: str) -> Pass:
    try:
        made: Pass = getattr(import_module(point.module), point.attr)()
    except Exception as error:
        raise PassError(point.name, (), f"{point.value} of {owner} cannot be loaded: {error}") from error
    if made.name != point.name:
        raise PassError(point.name, (), f"{point.value} of {owner} calls itself {made.name!r}")
    return made

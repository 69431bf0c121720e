"""What to do when another process builds what is wanted: ``on_busy`` and its timeout."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trtcache.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

POLICIES: Final = ("wait", "build", "eager")

RANKS_WAIT_S: Final = 480.0
"""How long ranks wait. NCCL gives up on a collective after 600 s: who comes to one late by this and a little more than
the others finds them there still."""


@dataclass(frozen=True, slots=True)
class ContentionPolicy:
    """What to do while another builds.

    Attributes:
        policy: ``wait`` for it, ``build`` the same at once, or ``eager``: do without an engine this time.
        timeout_s: seconds to wait before that; after ``wait`` it is a build. None: of ``wait`` for as long as the other
            lives, of the others not at all.
        rank: which process of a distributed job this is, such as ``rank 1 of 4``; empty for one that is none.
    """

    policy: str = "wait"
    timeout_s: float | None = None
    rank: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ContentionPolicy:
        """Read ``TRTCACHE_ON_BUSY`` and ``TRTCACHE_BUSY_TIMEOUT``, and the rank that ``torchrun`` gave.

        Raises:
            SettingsError: a variable has an impossible value.
        """
        text = environ.get("TRTCACHE_BUSY_TIMEOUT", "").strip()
        policy = _policy(environ.get("TRTCACHE_ON_BUSY", "").strip().lower() or "wait", "TRTCACHE_ON_BUSY")
        found = cls(policy, _seconds(text, "TRTCACHE_BUSY_TIMEOUT") if text else None, _rank(environ))
        if found.rank and policy == "wait" and not text:
            return replace(found, timeout_s=RANKS_WAIT_S)
        return found

    def override(self, on_busy: str | None, timeout_s: float | None) -> ContentionPolicy:
        """Return this with what a caller said in its place.

        Raises:
            SettingsError: it is no policy, or no number of seconds.
        """
        found = self if on_busy is None else replace(self, policy=_policy(on_busy, "on_busy"))
        return found if timeout_s is None else replace(found, timeout_s=_seconds(timeout_s, "busy_timeout_s"))

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait; None for as long as the other lives."""
        return 0.0 if self.timeout_s is None and self.policy != "wait" else self.timeout_s


def _policy(text: object, name: str) -> str:
    if text in POLICIES:
        return str(text)
    raise SettingsError(name, f"{text!r}: {did_you_mean(str(text), list(POLICIES))}")


def _seconds(given: object, name: str) -> float:
    try:
        seconds = float(given) if isinstance(given, (str, int, float)) else math.nan
    except ValueError:
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    raise SettingsError(name, f"{given!r} is no number of seconds from 0")


def _rank(environ: Mapping[str, str]) -> str:
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    return f"rank {rank} of {world}" if rank.isdecimal() and world.isdecimal() and int(world) > 1 else ""

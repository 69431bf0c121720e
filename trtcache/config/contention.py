"""Contention policy: what to do while another process builds the same entry (``on_busy`` and its timeout)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

ON_BUSY: Final = ("wait", "build", "eager")

RANKS_WAIT_S: Final = 480.0
"""Default timeout of ranks. NCCL aborts a collective after 600 s: a rank that is late by this and a little more still
finds the others waiting.
"""


@frozen_dataclass
class ContentionPolicy:
    """What to do while another process builds the same entry.

    Attributes:
        policy: ``wait`` for it, ``build`` the same at once, or ``eager``: run without an engine this time.
        timeout_s: seconds to wait before that; after ``wait`` follows a build. None: ``wait`` waits for as long as the
            other process lives, the others do not wait.
        rank: which process of a distributed job this is, such as ``rank 1 of 4``; empty outside a job.
    """

    policy: str = "wait"
    timeout_s: float | None = None
    rank: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ContentionPolicy:
        """Read ``TRTCACHE_ON_BUSY`` and ``TRTCACHE_BUSY_TIMEOUT``, and the rank set by ``torchrun``."""
        text = environ.get("TRTCACHE_BUSY_TIMEOUT", "").strip()
        policy = _policy(environ.get("TRTCACHE_ON_BUSY", "").strip().lower() or "wait", "TRTCACHE_ON_BUSY")
        rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
        is_rank = rank.isdecimal() and world.isdecimal() and int(world) > 1
        timeout_s = parse_seconds(text, "TRTCACHE_BUSY_TIMEOUT") if text else None
        if is_rank and policy == "wait" and not text:
            timeout_s = RANKS_WAIT_S
        return cls(policy, timeout_s, f"rank {rank} of {world}" if is_rank else "")

    def override(self, on_busy: str | None, timeout_s: float | None) -> ContentionPolicy:
        """Return this policy with the given arguments in place of its own values; None keeps a value."""
        policy = self if on_busy is None else replace(self, policy=_policy(on_busy, "on_busy"))
        return policy if timeout_s is None else replace(policy, timeout_s=parse_seconds(timeout_s, "busy_timeout_s"))

    def variables(self) -> dict[str, str]:
        """Return the environment variables of this policy. The rank is left out: it belongs to one process."""
        timeout = "" if self.timeout_s is None else repr(self.timeout_s)
        return {"TRTCACHE_ON_BUSY": self.policy, "TRTCACHE_BUSY_TIMEOUT": timeout}

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait; None to wait for as long as the other process lives."""
        return 0.0 if self.timeout_s is None and self.policy != "wait" else self.timeout_s


def _policy(text: object, name: str) -> str:
    if text in ON_BUSY:
        return str(text)
    raise SettingsError(name, f"{text!r}: {did_you_mean(str(text), list(ON_BUSY))}")


def parse_seconds(given: object, name: str) -> float:
    """Parse a number of seconds, 0 or more.

    Raises:
        SettingsError: it is not one; the message names ``name``.
    """
    try:
        seconds = float(given) if isinstance(given, (str, int, float)) else math.nan
    except ValueError:
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    raise SettingsError(name, f"{given!r} is not a number of seconds, 0 or more")

"""The pairs of ``pairs.py`` and ``attacks.py`` as scenarios, which one process forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.direct.attacks import PAIRS as ATTACKS
from tests.direct.pairs import HIT, PAIRS
from tests.direct.scenarios import MAY_HIT, MISS, Scenario

if TYPE_CHECKING:
    from tests.direct.pairs import Pair


def _scenario(pair: Pair) -> Scenario:
    return Scenario(
        pair.files,
        pair.after,
        pair.script,
        pair.then or None,
        MAY_HIT if pair.expected == HIT else MISS,
        env_after=pair.environ,
        argv=("-W", "ignore", "script.py") if "PYTHONHASHSEED" in pair.environ else (),
    )


SCENARIOS = {name: _scenario(pair) for name, pair in {**PAIRS, **ATTACKS}.items()}

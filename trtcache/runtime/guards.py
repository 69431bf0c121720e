"""What a call with sizes does that the program was not exported for."""

from __future__ import annotations

from typing import Final

from trtcache.errors import SettingsError, did_you_mean

ON_GUARD: Final = ("error", "eager", "compile")


def parse_on_guard(policy: object) -> str:
    """Validate a policy.

    Raises:
        SettingsError: it is unknown; the message has the nearest one.
    """
    if policy in ON_GUARD:
        return str(policy)
    raise SettingsError("on_guard", f"{policy!r}: {did_you_mean(str(policy), list(ON_GUARD))}")

"""A build that runs on a cache miss."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trtcache.store.entry import Entry
from trtcache.store.format import contents_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trtcache.digests import CacheKey
    from trtcache.store.format import Built, Content


class PendingBuild:
    """A build that runs on a cache miss: its key, build function, name and provenance."""

    def __init__(
        self, key: CacheKey, build: Callable[[], Built], name: str | None, provenance: Mapping[str, str]
    ) -> None:
        self.key = key
        self._build = build
        self._name = name
        self._provenance = provenance

    def run(self, reason: str) -> Entry:
        """Build, and return the entry with its contents in memory and in the build function's files."""
        began_s = time.perf_counter()
        contents: dict[str, Content] = contents_of(self._build(), self.key.kind)
        return Entry(
            key=self.key,
            kind=self.key.kind,
            name=self._name,
            build_s=time.perf_counter() - began_s,
            created_ns=time.time_ns(),
            provenance={**_circumstances(), **self._provenance},
            outcome="built",
            reason=reason,
            path=None,
            load_s=0.0,
            contents=contents,
        )


def _circumstances() -> dict[str, str]:
    import platform  # a hit needs neither import

    from trtcache.config.version import installed_version

    return {
        "host": platform.node(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "python": platform.python_version(),
        "trtcache": installed_version(),
    }

"""A store in a fresh directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trtcache.digests import CacheKey
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    """An empty store."""
    return DiskStore.open(tmp_path / "cache")


@pytest.fixture
def key() -> CacheKey:
    """A key that has no entry yet."""
    return CacheKey.of("test", {"n": 1})

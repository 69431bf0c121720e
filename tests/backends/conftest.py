"""Fixtures for tests of other distributions' backends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from trtcache.config import backend_settings

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Offer a class as the backend of its name, as an installed distribution does, and return the name."""

    def offer_(backend_class: type, name: str | None = None) -> str:
        name = name or getattr(backend_class, "name", backend_class.__name__)
        monkeypatch.setattr(sys.modules[__name__], "_offered", backend_class, raising=False)
        table = {**backend_settings.BUILT_IN, name: f"{__name__}:_offered"}
        monkeypatch.setattr(backend_settings, "backend_table", lambda: table)
        return name

    return offer_

"""A plugin of pytest: quicker exports for tests of an example, which are run as their author runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.keys.tracing import operators_listed_once, registry_made_once

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _quicker_torch() -> Iterator[None]:
    """Let torch list once what it lists in each export."""
    with operators_listed_once(), registry_made_once():
        yield

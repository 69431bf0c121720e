"""A plugin of pytest that makes the many exports of a session quicker: ``-p tests.quicker_torch``."""

from __future__ import annotations

import importlib.util
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def quicker_torch() -> Iterator[None]:
    """Make the many exports of a session quicker."""
    if importlib.util.find_spec("torch") is None:  # make test-base
        yield
        return
    from tests.keys.tracing import operators_listed_once, registry_made_once
    from tests.untraced import torch_untraced

    with operators_listed_once(), registry_made_once(), torch_untraced(), _no_structured_trace():
        yield


@contextmanager
def _no_structured_trace() -> Iterator[None]:
    """Let torch write no structured trace: it does for a logger with handlers, and pytest gives it its own."""
    from torch._logging import _internal

    with mock.patch.object(_internal, "trace_log", logging.Logger("torch.__trace")):
        yield

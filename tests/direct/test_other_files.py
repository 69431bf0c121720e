"""State in other files of the user's: what a look-up that misses leaves there decides about the export after it."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

X = torch.rand(3, 4)
LIBRARY = """
import threading
import torch

READY, SEEN, TABLE = False, [], None


class Slots:
    __slots__ = ("table",)


SLOTS, LOCAL = Slots(), threading.local()


def first_call():
    global READY
    by = 2.0 if READY else 3.0
    READY = True
    return by


def count():
    SEEN.append(1)
    return float(len(SEEN))


def table():
    global TABLE
    if TABLE is None:
        TABLE = torch.arange(4.0)
    return TABLE


def in_slots():
    if not hasattr(SLOTS, "table"):
        SLOTS.table = torch.arange(4.0)
    return SLOTS.table


def in_thread():
    if not hasattr(LOCAL, "table"):
        LOCAL.table = torch.arange(4.0)
    return LOCAL.table
"""
MODEL = """
import library_of_state
import torch


class Model(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return x * getattr(library_of_state, self.name)()
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes a model which uses a function of another file, with the state of a new process."""
    (tmp_path / "library_of_state.py").write_text(LIBRARY)
    (tmp_path / "model_of_state.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])  # without those of the tests

    def made(name: str) -> nn.Module:
        for one in ("library_of_state", "model_of_state"):
            sys.modules.pop(one, None)
        found: nn.Module = importlib.import_module("model_of_state").Model(name).eval()
        return found

    yield made
    for one in ("library_of_state", "model_of_state"):
        sys.modules.pop(one, None)


@pytest.mark.parametrize("name", ["first_call", "count", "table", "in_slots", "in_thread"])
def test_an_export_after_a_missed_look_up_is_as_without(
    name: str, model: Any, interpreter: str, tmp_path: Path
) -> None:
    """The first model was called before, so its trace is another one."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache"}
    called = model(name)
    called(X)
    trtcache.compile(called, (X,), direct="on", **options)
    found = trtcache.compile(model(name), (X,), direct="on", **options)
    wanted = trtcache.compile(model(name), (X,), direct="off", **options)
    assert found.report.direct.startswith(("miss", "off"))
    torch.testing.assert_close(found(X), wanted(X), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["table", "in_slots", "in_thread"])
def test_tables_in_other_files_hit(name: str, model: Any, interpreter: str, tmp_path: Path) -> None:
    """An export leaves no tensor without values there."""
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
    outcomes = [trtcache.compile(model(name), (X,), **options).report.direct for _ in range(2)]
    assert [one.partition(":")[0] for one in outcomes] == ["miss", "hit"]

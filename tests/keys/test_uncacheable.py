"""Programs of which no key can be made: built without the cache, with a reason, and never guessed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from trtcache.config.environment import Config
from trtcache.errors import BuildForbiddenError, CanonicalizationError, SettingsError
from trtcache.keys.graph_digest import graph_records
from trtcache.settings import Settings
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(3, 4)
WHOLE = {"require_full_compilation": True}
"""What such a program is built with as one engine; without it the operator stays in torch."""


@torch.library.custom_op("trtcache_tests::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Return a tensor times a number: what it does cannot be seen from a program."""
    return x * factor


@scale.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


class Scaled(nn.Module):
    """A layer and a custom operator."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scale(self.lin(x), 2.0)


def test_a_custom_operator_is_built_without_the_cache(
    interpreter: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is right, nothing is stored, the reason is in the report, in a warning and in the counts."""
    model = Scaled()
    for _ in range(2):
        module = trtcache.compile(model, (X,), backend=interpreter, cache=tmp_path / "c", settings=WHOLE)
        torch.testing.assert_close(module(X), model(X))
        (partition,) = module.report.partitions
        assert (partition.outcome, partition.key, partition.path) == ("built", None, None)
        assert partition.reason.startswith("uncacheable: graph node scale: custom operator trtcache_tests::scale")
        assert "without key" in str(module.report)
    store = DiskStore.open(tmp_path / "c")
    assert list(store.scan()) == []
    assert [(event.event, event.reason) for event in store.events.read()] == [("miss", "uncacheable")] * 2
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "Scaled is not cached: graph node scale" in warnings[0].getMessage()


def test_where_builds_are_forbidden_it_is_an_error(interpreter: str, tmp_path: Path) -> None:
    """With the reason, which no change of the cache can mend."""
    cache = trtcache.Cache(config=Config(tmp_path / "c", forbid_build=True))
    with pytest.raises(BuildForbiddenError, match="uncacheable: graph node scale: custom operator"):
        trtcache.compile(Scaled(), (X,), backend=interpreter, cache=cache, settings=WHOLE)


def test_a_key_that_is_asked_for_is_refused() -> None:
    """The message has the setting that helps."""
    with pytest.raises(CanonicalizationError, match=r"operator_versions': \{'trtcache_tests::scale': '1'\}"):
        trtcache.key(Scaled(), (X,), settings=WHOLE)


@pytest.mark.parametrize("name", ["trtcache_tests::scale", "trtcache_tests"])
def test_a_declared_version_makes_it_cacheable(interpreter: str, tmp_path: Path, name: str) -> None:
    """Of the operator or of its namespace; another version is another key, and the miss says so."""
    reports = [
        trtcache.compile(
            Scaled(), (X,), backend=interpreter, cache=tmp_path / "c", settings={"operator_versions": {name: version}}
        ).report
        for version in ("1", "1", "2")
    ]
    assert [report.partitions[0].outcome for report in reports] == ["built", "hit", "built"]
    assert reports[1].why == ""
    assert reports[2].why.partition(" differs in ")[2].startswith("settings.operator_versions")
    assert reports[2].why.endswith(": 1 -> 2")


def test_the_schema_of_a_custom_operator_is_in_the_key() -> None:
    """An operator that takes other arguments under its old name and version is another operator."""
    records, _ = graph_records(trtcache.lower(Scaled(), (X,)), ["trtcache_tests"])
    operators = [record[0] for record in records if isinstance(record, list)]
    assert "trtcache_tests::scale(Tensor x, float factor) -> Tensor" in operators


def test_versions_are_text() -> None:
    """A number could be written in several ways."""
    with pytest.raises(SettingsError, match="1 is not a string"):
        Settings(operator_versions={"mylib": 1})  # type: ignore[dict-item]
    with pytest.raises(SettingsError, match="expected a mapping"):
        Settings(operator_versions="mylib")  # type: ignore[arg-type]


@torch.library.custom_op("trtcache_tests::fill", mutates_args=("x",))
def fill(x: torch.Tensor, value: float) -> None:
    """Fill a tensor."""
    x.fill_(value)


class Filled(nn.Module):
    """A custom operator that changes its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        fill(made, 3.0)
        return made + x


def test_a_custom_operator_that_changes_its_argument_is_built_without_the_cache(
    interpreter: str, tmp_path: Path
) -> None:
    """It reaches the graph inside a function of torch's that has no digest, whatever is declared."""
    declared = {"operator_versions": {"trtcache_tests": "1"}, **WHOLE}
    module = trtcache.compile(Filled(), (X,), backend=interpreter, cache=tmp_path / "c", settings=declared)
    torch.testing.assert_close(module(X), X + 3)
    assert module.report.partitions[0].reason.startswith("uncacheable: graph node auto_functionalized")

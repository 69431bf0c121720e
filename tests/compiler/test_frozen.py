"""Engines that were to take other weights and cannot: they are built for one set, under a key that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.errors import BuildForbiddenError, FrozenWeightsError

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(3, 4)

pytestmark = pytest.mark.usefixtures("interpreter")


def compiled(root: Path, value: float = 1.0, **settings: object) -> trtcache.CompiledModule:
    """Compile with a backend that never builds an engine which takes other weights."""
    return trtcache.compile(Affine(value), (X,), backend="freezer", cache=root, settings={"freezer": settings})


def digest(module: trtcache.CompiledModule) -> str:
    """Return the key of a module's engine."""
    return str(module.report.partitions[0].key)


def test_an_engine_that_is_not_refittable_is_built_for_these_weights(tmp_path: Path) -> None:
    """The report has the reason; the entry's key has the fingerprints of the weights."""
    module = compiled(tmp_path)
    (one,) = module.report.partitions
    assert (one.outcome, one.reason) == (
        "built",
        "frozen: bn.weight: the network has no refittable weight of this name",
    )
    assert one.frozen == 3
    assert "frozen: it has the values of 3 weights" in str(module.report)
    assert torch.allclose(module(X)[0], Affine()(X)[0])


def test_it_is_found_again_without_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hits with these weights only, also with builds forbidden; each set of weights has an entry of its own."""
    keys = {digest(compiled(tmp_path, value)) for value in (1.0, 2.0)}
    assert len(keys) == 2
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    for value in (1.0, 2.0):
        module = compiled(tmp_path, value)
        assert module.report.partitions[0].outcome == "hit"
        assert digest(module) in keys
        assert torch.allclose(module(X)[0], Affine(value)(X)[0])
    with pytest.raises(BuildForbiddenError):
        compiled(tmp_path, 3.0)


def test_a_required_refit_is_an_error(tmp_path: Path) -> None:
    """The error names the weights and the setting; requiring no refit gives the key of the fallback."""
    with pytest.raises(FrozenWeightsError, match=r"bn.weight: .*; build it for these weights only .* .*'refit': False"):
        compiled(tmp_path, refit=True)
    asked = compiled(tmp_path, refit=False).report.partitions[0]
    assert asked.reason == "absent"
    assert compiled(tmp_path).report.partitions[0].key == asked.key


def test_no_alias_leads_to_an_engine_that_is_not_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An alias has the key of an engine that takes any weights, and there is none."""
    with caplog.at_level("INFO"):
        compiled(tmp_path)
        compiled(tmp_path)
    assert "gets no key alias: no engine of its key is stored" in caplog.text
    assert "which is missing or damaged" not in caplog.text

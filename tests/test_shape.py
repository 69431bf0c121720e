"""The shape of the package: layers that name every module, and limits for what a hit runs."""

from __future__ import annotations

import re
import tomllib

import pytest

from benchmarks.shape import PACKAGE, ROOT, measure_hits

# Calls of functions of this package, their files, the deepest stack of them, and verified entries of the store. A
# target has a call for each of the processor's vector instructions: some 40 more on the newest.
_LIMITS = {
    "get_or_build": {"calls": 100, "files": 11, "frames": 11},
    # operators.py looks for functions in torch's tables that are not torch's own; trial_runs.py compares layouts.
    "file": {"calls": 1_345, "files": 58, "frames": 22, "entries": 2},
    # unrecorded.py watches each function of torch in an export; weight_source.py looks at all objects of the model, so
    # that a refit with another one is refused where they differ. caches.py follows objects beside the model, and
    # record.py reads and restores them without code of their classes.
    "exported": {"calls": 2_800, "files": 67, "frames": 22, "entries": 2},
    # export_context.py: torch.fx calls each module, with as many frames as in an export. executed_code.py describes the
    # functions that ran. model_state.py looks after forward whether it has changed the model.
    "direct": {"calls": 3_920, "files": 68, "frames": 29, "entries": 3},
}


@pytest.fixture(scope="module")
def hits() -> dict[str, dict[str, int]]:
    """What warm hits run, measured in a process of its own."""
    return measure_hits()


@pytest.mark.parametrize("way", _LIMITS)
def test_a_hit_runs_no_more_than_it_did(hits: dict[str, dict[str, int]], way: str) -> None:
    """Calls, files, frames and entries of a warm hit stay within limits: raise one only with a reason."""
    assert hits.keys() == _LIMITS.keys()
    assert {name: count for name, count in hits[way].items() if count > _LIMITS[way][name]} == {}


def test_every_module_has_a_layer() -> None:
    """Each package and each loose file stands in one row of the layer contract, and there are at most 15 rows."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    modules = [name for row in rows for name in re.split(r"\s*[|:]\s*", row)]
    paths = [path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert {f"trtcache.{path.stem}" for path in paths if path.name != "__init__.py"} <= set(modules)
    assert len(modules) == len(set(modules))
    assert len(rows) <= 15

"""What users do between two compiles: direct mode hits only where an export would give the same program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.direct.field_known import MISSED, WRONG
from tests.direct.field_scenarios import SCENARIOS, Scenario
from tests.direct.scenario_runner import site
from tests.effort import tries

pytestmark = [pytest.mark.slow, pytest.mark.torture]

PROJECT = Path(__file__).parents[2]
STEPS = (("first", "1"), ("second", "7"))
"""The process before the change and the one after it, each with its own seed of hashes."""
TRIED = [*range(len(SCENARIOS))][:: tries(200, 1)]
"""Every 200th scenario, or with ``make torture`` all of them."""
Results = dict[int, dict[str, dict[str, Any]]]


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run the chosen scenarios in two processes, one after the other."""
    tests = [item for item in request.session.items if getattr(item, "originalname", "") == "test_a_field_scenario"]
    numbers = [item.callspec.params["number"] for item in tests]  # type: ignore[attr-defined]  # pytest's functions have it
    base = tmp_path_factory.mktemp("field")
    # Hide what the tests set for themselves: direct mode is off there, and each process has a thread.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "TRTCACHE_"))}
    environ["PYTHONPATH"] = f"{PROJECT}:{PROJECT / 'cli'}:{PROJECT / 'migrations'}:{site(base)}"
    found: Results = {number: {} for number in numbers}
    for step, seed in STEPS:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.direct.field_runner", str(base), step, *map(str, numbers)],
            cwd=base,
            env=environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                found[result["number"]][step] = result
    return found


def _edits_code(scenario: Scenario) -> bool:
    """Return whether functions may have changed: in a file, or by what the change defines."""
    return bool(
        scenario.to or scenario.added or scenario.second or re.search(r"\b(def|lambda|import)\b", scenario.change)
    )


def _param(number: int) -> Any:
    marks = [pytest.mark.xfail(reason="a known wrong hit")] if SCENARIOS[number].doc in WRONG else []
    return pytest.param(number, id=SCENARIOS[number].doc, marks=marks)


@pytest.mark.parametrize("number", [_param(number) for number in TRIED])
def test_a_field_scenario(number: int, results: Results) -> None:
    """Where it hits, an export in the same process gives the same key and the same answers."""
    scenario = SCENARIOS[number]
    for step, result in results[number].items():
        assert "crash" not in result, (step, result["crash"])
        for way in ("control", "live", "pair"):
            assert not result.get(way, {}).get("wrong"), (step, way, result[way]["wrong"])
    if scenario.harmless and scenario.doc not in MISSED:
        direct = results[number]["second"]["pair"]["direct"]
        assert direct == "hit" or (direct.startswith("miss: code has changed") and _edits_code(scenario))

"""What users do between two runs: a process after it gets no program that exporting would not give."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.direct.scenario_runner import PHASES, site
from tests.direct.scenarios import MAY_HIT
from tests.effort import tries
from tests.python_server import SEEDS

pytestmark = [pytest.mark.slow, pytest.mark.torture]

PROJECT = Path(__file__).parents[2]
SUITES = ("scenarios", "pair_scenarios", "edits")
SCENARIOS = {
    (suite, name): scenario
    for suite in SUITES
    for name, scenario in importlib.import_module(f"tests.direct.{suite}").SCENARIOS.items()
}
TRIED = [*SCENARIOS][:: tries(64, 1)]
"""Every 64th scenario, or with ``make torture`` all of them."""
Results = dict[tuple[str, str], dict[str, dict[str, Any]]]


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, python: str) -> Results:
    """Run all states before the changes with one seed of hashes, and all after them with another."""
    found: Results = defaultdict(dict)
    tests = [item for item in request.session.items if getattr(item, "originalname", "") == "test_a_scenario"]
    chosen = [item.callspec.params for item in tests]  # type: ignore[attr-defined]  # pytest's functions have it
    names = [f"{one['suite']}/{one['name']}" for one in chosen]
    base = tmp_path_factory.mktemp("scenarios")
    path = f"{PROJECT}:{PROJECT / 'cli'}:{PROJECT / 'migrations'}:{site(base)}"
    # Hide what the tests set for themselves: direct mode is off there, and each process has a thread.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "TRTCACHE_"))}
    environ |= {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "SCENARIO_PYTHON": python}
    for seed, phases in zip(SEEDS, (PHASES[:2], PHASES[2:]), strict=True):
        command = [sys.executable, "-W", "ignore", "-m", "tests.direct.scenario_runner", str(base)]
        command += [",".join(phases), *names]
        environ["PYTHONHASHSEED"] = seed
        done = subprocess.run(command, cwd=base, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                found[result["suite"], result["name"]][result["phase"]] = result
    return found


@pytest.mark.parametrize(("suite", "name"), TRIED)
def test_a_scenario(suite: str, name: str, results: Results) -> None:
    """It hits only where a process of the same state that exports gets the same outputs and keys."""
    for phase, result in results[suite, name].items():
        assert result["direct"] != "crash", (phase, result["log"])
        assert not result["wrong"], (phase, result["out"], result["off"])
    before, after = results[suite, name]["before"], results[suite, name]["after"]
    if SCENARIOS[suite, name].expected == MAY_HIT:
        assert suite == "scenarios" or after["direct"] == "hit"
    elif suite != "pair_scenarios":
        assert (before["out"], before["keys"]) != (after["out"], after["keys"]), "the change changes nothing"

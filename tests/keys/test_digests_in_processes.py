"""One exported program has one digest, whatever process exports it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries

if TYPE_CHECKING:
    from tests.conftest import StartPython


@pytest.mark.slow
@pytest.mark.torture
def test_two_processes_find_one_digest(start_python: StartPython) -> None:
    """Programs of 40 models with dynamic sizes have equal digests under different hash seeds; every third is tried."""
    step = tries(3, 1)
    code = f"import json; from tests.keys.dynamic_models import digests; print(json.dumps(digests({step})))"
    processes = [start_python(code, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    printed = [process.communicate(timeout=1800) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed[0][1][-2000:]
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in printed)
    assert len(first) >= 40 // step
    assert first == second

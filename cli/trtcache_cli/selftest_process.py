"""Run steps of the self-test in a separate process, which may crash: ``python -m trtcache_cli.selftest_process``.

Its argument is a JSON object: ``steps``, ``backend``, ``device`` and ``root``. At the end of each step it prints one
line, ``{"end": ...}`` with a ``StepResult``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import BackendUnavailableError, TrtcacheError
from trtcache_cli.selftest_result import FAILED, NOT_RUN, OK, StepResult, without_paths

if TYPE_CHECKING:
    from trtcache_cli.selftest_subject import Subject


def run_step(step: str, subject: Subject) -> StepResult:
    """Run one step and return its result, also if it fails."""
    from trtcache_cli.selftest_steps import RUN, FailedError, NotRunError, require_device

    start, facts = time.perf_counter(), {}
    try:
        if step != "environment":
            require_device(subject)
        outcome = RUN[step](subject)
        if isinstance(outcome, tuple):
            outcome, facts = outcome
        status = OK
    except NotRunError as error:
        status, outcome = NOT_RUN, str(error)
    except (FailedError, TrtcacheError) as error:
        status, outcome = FAILED, str(error)
    except Exception as error:  # noqa: BLE001  # any failure is a result of the test
        status, outcome = FAILED, f"{type(error).__name__}: {error}"
    return StepResult(step, status, without_paths(outcome, subject.root.parent), time.perf_counter() - start, facts)


def main(text: str) -> int:
    """Run the requested steps."""
    from trtcache_cli.selftest_subject import Subject

    request = json.loads(text)
    subject = Subject(request["backend"], request["device"], _target(request["backend"]), Path(request["root"]), {})
    usable = True
    for step in request["steps"]:
        result = run_step(step, subject) if usable else StepResult(step, NOT_RUN, "the backend cannot be used here")
        usable = usable and not (step == "environment" and result.status == FAILED)
        sys.stdout.write(json.dumps({"end": asdict(result)}) + "\n")
        sys.stdout.flush()
    return 0


def _target(backend: str) -> str | None:
    """Return the target of a backend's test; None if it is unavailable, which the first step reports."""
    from trtcache.backends import registry

    try:
        return registry.load_backend(backend).selftest().target
    except BackendUnavailableError:
        return None


if __name__ == "__main__":
    import torch

    # Eager convolutions use TF32 by default.
    torch.backends.cudnn.allow_tf32 = False
    sys.exit(main(sys.argv[1]))

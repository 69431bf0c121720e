"""Some steps of the self-test in a process of their own, which may die: ``python -m trtcache_cli.selftest_process``.

Its argument is a JSON object: ``steps``, ``backend``, ``device`` and ``root``. For each step it prints one line when it
has ended, ``{"end": ...}`` with a ``StepResult``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from trtcache.errors import TrtcacheError
from trtcache_cli.selftest_result import FAILED, NOT_RUN, OK, StepResult

if TYPE_CHECKING:
    from trtcache_cli.selftest_subject import Subject


def attempt(step: str, subject: Subject) -> StepResult:
    """Run one step, whatever comes of it."""
    from trtcache_cli.selftest_steps import RUN, FailedError, NotRunError, require_device

    start, facts = time.perf_counter(), {}
    try:
        if step != "environment":
            require_device(subject)
        saw = RUN[step](subject)
        if isinstance(saw, tuple):
            saw, facts = saw
        status = OK
    except NotRunError as error:
        status, saw = NOT_RUN, str(error)
    except (FailedError, TrtcacheError) as error:
        status, saw = FAILED, str(error)
    except Exception as error:  # noqa: BLE001  # a defect is what this is to find
        status, saw = FAILED, f"{type(error).__name__}: {error}"
    return StepResult(step, status, _without_paths(saw, subject.root), time.perf_counter() - start, facts)


def _without_paths(text: str, root: Path) -> str:
    """Return text that can be pasted where everybody reads it."""
    return text.replace(str(root.parent), "...").replace(str(Path.home()), "~")


def main(asked: str) -> int:
    """Run the steps that are asked for."""
    from trtcache_cli.selftest_environment import default_target
    from trtcache_cli.selftest_subject import Subject

    told = json.loads(asked)
    subject = Subject(told["backend"], told["device"], default_target(told["backend"]), Path(told["root"]), {})
    usable = True
    for step in told["steps"]:
        result = attempt(step, subject) if usable else StepResult(step, NOT_RUN, "the backend cannot be used here")
        usable = usable and not (step == "environment" and result.status == FAILED)
        sys.stdout.write(json.dumps({"end": asdict(result)}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    import torch

    # Eager's own convolutions round their factors to TF32 unless they are told not to.
    torch.backends.cudnn.allow_tf32 = False
    sys.exit(main(sys.argv[1]))

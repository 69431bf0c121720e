"""What tests compare outputs with, alone and while a module is refitted."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from tests.models import retrained
from trtcache.testing.refit import difference as difference
from trtcache.testing.refit import mixed_results as mixed_results

if TYPE_CHECKING:
    from tests.models import Case
    from trtcache import CompiledModule


def differ(first: CompiledModule, second: CompiledModule, case: Case) -> str | None:
    """Return how two compiles of a model differ, in key, output or output with other weights, which both then have."""
    keys = [module.report.partitions[0].key for module in (first, second)]
    if keys[0] != keys[1]:
        return f"key {keys[1]}, not {keys[0]}"
    why = difference(first(*case.args, **case.kwargs), second(*case.args, **case.kwargs), tolerance=0.0)
    other = retrained(copy.deepcopy(case.model)).state_dict()
    for module in (first, second):
        module.refit(other)
    return why or difference(first(*case.args, **case.kwargs), second(*case.args, **case.kwargs), tolerance=0.0)

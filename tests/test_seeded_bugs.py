"""The bugs of ``make bugs`` can be put in: what each replaces is still there."""

from __future__ import annotations

import pytest

from tests.seeded_bugs import BUGS, PROJECT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: str(bug.name))
def test_what_a_bug_replaces_is_there_once(bug: Bug) -> None:
    """Or ``make bugs`` ends with an error, which is run less often than the tests."""
    assert (PROJECT / bug.path).read_text(encoding="utf-8").count(bug.old) == 1
    assert all((PROJECT / test).exists() for test in bug.found_by)

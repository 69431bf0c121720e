"""What enters a key is decided once for each field: a new one without a decision fails here."""

from __future__ import annotations

from dataclasses import fields

from trtcache.settings import IN_THE_GRAPH, Settings
from trtcache.target import Target

IN_THE_KEY = {"inductor", "operator_versions"}
"""Fields of ``Settings`` that the key has by themselves."""

LEFT_OUT = {
    "torch_executed_modules": "marks nodes, and the marks are in the graph's digest",
}
"""Fields that the settings' part of the key leaves out, and why that cannot give two builds one key."""


def test_every_setting_is_in_the_key_unless_it_is_decided_otherwise() -> None:
    """Add a new field of ``Settings`` to one of the two lists above, with a test of what it does to keys."""
    assert {one.name for one in fields(Settings)} == IN_THE_KEY | set(LEFT_OUT)
    assert set(Settings().document()) == IN_THE_KEY
    assert set(LEFT_OUT) == IN_THE_GRAPH


def test_every_field_of_a_target_is_in_the_key() -> None:
    """A target is described by what decides where an artifact runs, and by nothing else."""
    target = Target("linux-x86_64", "cpu", "native", ("avx",))
    assert set(target.document()) == {one.name for one in fields(Target)}

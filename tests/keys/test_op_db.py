"""Operators of torch's sample database: a change of one argument that changes the results changes the key."""

from __future__ import annotations

import random

import pytest
import torch

from tests.effort import tries
from tests.keys.evidence import DOCUMENT, markdown
from tests.keys.operators import Outcome, examine, names

pytestmark = pytest.mark.no_cover  # thousands of the same calls: tracing them takes longer than the calls do

SAMPLE = random.Random(3).sample(names(), 24)[: tries(12, 24)]


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", SAMPLE)
def test_a_change_of_one_argument_changes_the_key(name: str) -> None:
    """Each change of an operator's argument that changes its results changes its key (a seeded sample of them)."""
    assert examine(name).confused == []


@pytest.mark.slow
def test_a_causal_attention_is_told_from_a_plain_one() -> None:
    """The search finds the changes that matter: of attention, that it is causal."""
    told = examine("nn.functional.scaled_dot_product_attention").told
    assert any(what.startswith("is_causal:") for what in told)


def test_the_document_has_every_operator() -> None:
    """docs/evidence/op_db.md was written for this version of torch, or says which, and no key in it was confused."""
    text = DOCUMENT.read_text()
    assert "**0 kept the key**" in text
    if f"torch {torch.__version__}" in text:
        assert {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")} == set(names())


def test_the_document_shows_what_was_confused() -> None:
    """An operator whose key did not change is named, with the change."""
    found = Outcome("softmax", "float32", told=["dtype"], confused=["dim: 0 -> 1"])
    text = markdown([found, Outcome("frame", skipped="no sample that runs")])
    assert "**1 kept the key**" in text
    assert "| `softmax` | float32 | 1 | 0 | 0 | `dim: 0 -> 1` |" in text
    assert "| `frame` | no sample that runs |" in text

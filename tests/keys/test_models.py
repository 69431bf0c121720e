"""Models that people deploy: their lowered programs compute the same, under keys that are the same everywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils import _pytree as pytree

import trtcache
from tests.effort import tries
from tests.keys.architectures import MODELS, called, renamed
from tests.lowering.lowered import outputs

if TYPE_CHECKING:
    from tests.conftest import StartPython

pytestmark = pytest.mark.no_cover  # thousands of the same calls: tracing them takes longer than the calls do

KEYS = """
import json
import trtcache
from tests.keys.architectures import MODELS, called
from tests.keys.tracing import operators_listed_once

with operators_listed_once():
    print(json.dumps({name: trtcache.key(*called(name)).digest for name in MODELS}))
"""
SEEDS = ("1", "0", "4242")[: tries(1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_lowered_model_computes_what_the_model_does(name: str) -> None:
    """The lowered program of a model, run by torch, returns the model's outputs."""
    model, args = called(name)
    program = trtcache.lower(model, args)
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*args))
        found = outputs(program, *args)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.torture
def test_keys_are_the_same_in_every_process_and_under_other_names(start_python: StartPython) -> None:
    """A process with another hash seed (torture: three), and this one with renamed modules, find one key for each."""
    processes = [start_python(KEYS, PYTHONHASHSEED=seed) for seed in SEEDS]
    expected = {name: trtcache.key(renamed(model), args).digest for name, (model, args) in _all_calls()}
    for process in processes:
        out, err = process.communicate(timeout=1800)
        assert process.returncode == 0, err
        assert json.loads(out.splitlines()[-1]) == expected
    assert len(set(expected.values())) == len(MODELS)


def _all_calls() -> list[tuple[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]]:
    return [(name, called(name)) for name in MODELS]


def test_renaming_renames() -> None:
    """A renamed model has its weights under other names, and computes the same."""
    model, args = called("bert")
    before, names = model(*args), set(model.state_dict())
    after = renamed(model)(*args)
    assert not names & set(model.state_dict())
    assert torch.equal(before, after)

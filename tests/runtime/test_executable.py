"""An executable from an entry's members is the one of the lowered program, and its constants are read as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import _TYPES, save

import trtcache
from tests import models
from trtcache import lowering
from trtcache.frontends.weight_files import DTYPES
from trtcache.keys.key import KeyAlias
from trtcache.lowering.interface import Content
from trtcache.runtime.executable import Executable, read_constants

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", sorted(models.cases()))
def test_an_entry_and_the_models_names_give_what_lowering_gave(interpreter: str, engines: Path, name: str) -> None:
    """Inputs, results, slots, weights with their recipes, constants and ranges are equal, of every kind of model."""
    case = models.cases()[name]
    report = trtcache.compile(case.model, case.args, case.kwargs, backend=interpreter, cache=engines).report
    entry = trtcache.Cache(engines).get(report.partitions[0].key)
    assert entry is not None
    keep = {"aten.scaled_dot_product_attention"}
    program = lowering.lower(case.model, case.args, case.kwargs, keep=keep)
    lowered, stored = Executable.of(program), Executable.from_entry(entry, KeyAlias.of(program, entry.key, None))
    assert stored.interface == lowered.interface
    assert list(stored.constants) == list(lowered.constants)
    for own, found in zip(lowered.constants.values(), stored.constants.values(), strict=True):
        assert Content.of(own) == Content.of(found)


def test_dtypes_are_called_as_safetensors_calls_them() -> None:
    """The table agrees with the library's."""
    assert {name: _TYPES[name] for name in DTYPES} == dict(DTYPES)


def test_constants_are_those_that_safetensors_wrote() -> None:
    """Of every dtype, of no elements, of no dimensions, and more than ten of them."""
    made = [torch.arange(24, dtype=torch.uint8).repeat(8)[: 6 * one.itemsize].view(one) for one in DTYPES.values()]
    made += [torch.zeros(0, 3), torch.tensor(7)]
    tensors = {f"c{number}": tensor for number, tensor in enumerate(made)}
    written = {name: (Content.of(tensor).digest, "cpu") for name, tensor in tensors.items()}
    found = read_constants(save(tensors), written, CPU)
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert Content.of(found[name]) == Content.of(tensor)


def test_a_constant_that_is_another_is_refused() -> None:
    """Its digest is compared."""
    with pytest.raises(ValueError, match="c0 does not match the key"):
        read_constants(save({"c0": torch.ones(2)}), {"c0": (Content.of(torch.zeros(2)).digest, "cpu")}, CPU)

"""Architectures that people deploy become one plan each, with every weight refittable by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backends.tensorrt.plans import compiled, lowered, network_of, onnx_of, stored
from tests.backends.tensorrt.zoo import made
from tests.keys.architectures import called
from trtcache.backends.tensorrt.build import mark_refittable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["t5", "crepe"])
def test_a_known_architecture_is_one_plan(name: str, engines: Path) -> None:
    """It is built and stored, and all weights are refittable."""
    module = compiled(*called(name), engines)
    facts, size_bytes = stored(module, engines)
    assert size_bytes > 0
    assert len(facts["weights"]["refittable"]) == module.report.partitions[0].weights
    assert facts["weights"]["frozen"] == {}


@pytest.mark.parametrize("name", ["unet", "detector", "generator"])
def test_other_architectures_are_networks_with_every_weight(name: str) -> None:
    """The whole program is in the network, and each weight is refittable; ``evidence.py`` builds these and more."""
    program = lowered(*made(name))
    support = mark_refittable(network_of(onnx_of(program)), program.interface, "tensorrt_rtx")
    assert support.frozen == {}
    assert len(support.refittable) == len(program.interface.weights) > 0


def test_a_model_computed_in_float16_is_a_plan_with_every_weight(engines: Path) -> None:
    """A float32 U-Net computed in float16 has its weights by recipes of casts, and becomes a plan."""
    module = compiled(*made("unet"), engines, settings={"autocast": "fp16"})
    facts, _ = stored(module, engines)
    assert facts["weights"]["frozen"] == {}
    assert len(facts["weights"]["refittable"]) == module.report.partitions[0].weights

"""Whether a plan can run on a machine: what was recorded, compared, and what becomes of one that cannot."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.backends.tensorrt.plans import compiled, stored
from trtcache.backends.fitness import driver_cuda
from trtcache.backends.tensorrt.engine import LoadedPlan, load_plan
from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX
from trtcache.backends.tensorrt.preflight import (
    MEMBER,
    Machine,
    PlanFacts,
    find_obstacle,
    other_gpu_product,
    require_loadable_version,
    why_invalid,
)
from trtcache.errors import IncompatibleEngineError, NoDeviceError, RefitError
from trtcache.target import Gpu, host_platform

if TYPE_CHECKING:
    from pathlib import Path

ADA = Gpu("NVIDIA GeForce RTX 4090", "8.9", 128, 24)
L4 = Gpu("NVIDIA L4", "8.9", 58, 24)
HERE = Machine("1.7.1.116", "linux-x86_64", ADA, 13)
TARGET = {"platform": "linux-x86_64", "device": "cuda", "capability": "8.6,8.9"}
FACTS = PlanFacts(1, ("in0",), ("out0",), False, (), "1.7.1.116", 13, TARGET, False)


def for_product(gpu: Gpu) -> dict[str, Any]:
    """Return the target of a plan of TensorRT, which is for one product."""
    return {**TARGET, "capability": gpu.capability, "gpu": gpu.document()}


def test_a_plan_for_this_machine_may_be_loaded() -> None:
    """One of its capabilities is enough, and so is what was recorded of no plan before."""
    require_loadable_version(FACTS, HERE)
    assert find_obstacle(FACTS, HERE) is None
    require_loadable_version(replace(FACTS, version=""), HERE)
    assert find_obstacle(replace(FACTS, target={}, cuda=None), HERE) is None
    assert find_obstacle(replace(FACTS, target=for_product(ADA)), HERE) is None
    assert find_obstacle(replace(FACTS, target={**TARGET, "capability": "ampere+"}), HERE) is None


@pytest.mark.parametrize(
    ("facts", "machine", "why"),
    [
        (FACTS, replace(HERE, gpu=None), "there is no NVIDIA GPU here"),
        (FACTS, replace(HERE, platform="linux-aarch64"), "the plan is for linux-x86_64, and this is linux-aarch64"),
        (replace(FACTS, target={**TARGET, "capability": "12.0"}), HERE, "for sm_120, and the GPU here is .*sm_89"),
        (
            replace(FACTS, target={**TARGET, "capability": "ampere+"}),
            replace(HERE, gpu=replace(ADA, capability="7.5")),
            r"for ampere\+",
        ),
        (FACTS, replace(HERE, cuda=12), "needs a driver for CUDA 13, and the one here is for CUDA 12"),
    ],
    ids=["no_gpu", "platform", "capability", "ampere", "driver"],
)
def test_a_plan_for_another_machine_is_told_why(facts: PlanFacts, machine: Machine, why: str) -> None:
    """The reason names what the plan wants and what is here."""
    found = find_obstacle(facts, machine)
    assert found is not None
    assert re.search(why, found.why)


def test_a_plan_for_another_product_of_the_capability_may_run() -> None:
    """It may be used where the settings allow it, and its product is reported."""
    facts = replace(FACTS, target=for_product(L4))
    assert find_obstacle(facts, HERE) is None
    assert other_gpu_product(facts, HERE) == "NVIDIA L4"
    assert other_gpu_product(replace(FACTS, target=for_product(ADA)), HERE) is None


@pytest.mark.parametrize(
    ("built", "compatible", "fits"),
    [("1.7.1.116", False, True), ("1.6.1.120", False, False), ("1.6.1.120", True, True), ("1.8.0.1", True, False)],
)
def test_a_plan_of_another_version_is_unfit(built: str, compatible: bool, fits: bool) -> None:
    """Only one that was built to be compatible is loaded by a later version of the same major one."""
    facts = replace(FACTS, version=built, version_compatible=compatible)
    if fits:
        require_loadable_version(facts, HERE)
    else:
        with pytest.raises(
            IncompatibleEngineError, match=rf"built by version {built}, and version 1\.7\.1\.116 is installed"
        ):
            require_loadable_version(facts, HERE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": null}'])
def test_what_is_beside_a_plan_may_be_anything(content: bytes) -> None:
    """It is refused in one error, by which the entry is built again."""
    with pytest.raises(IncompatibleEngineError, match="its facts"):
        PlanFacts.read(content)


def test_a_later_form_is_refused() -> None:
    """Its version is named."""
    with pytest.raises(IncompatibleEngineError, match="have format 2"):
        require_loadable_version(replace(FACTS, format=2), HERE)


def test_a_build_records_what_is_compared(engines: Path) -> None:
    """Version, CUDA, target, and the names of the arguments, those that the network dropped included."""

    class Unused(nn.Module):
        def forward(self, x: torch.Tensor, flag: bool, unused: torch.Tensor) -> torch.Tensor:
            return x.relu()

    written, _ = stored(compiled(Unused(), (torch.ones(2, 2), True, torch.ones(3)), engines), engines)
    facts = PlanFacts.read(json.dumps(written).encode())
    assert (facts.version, facts.cuda) == (TENSORRT_RTX.version, TENSORRT_RTX.cuda)
    assert (facts.target["capability"], facts.target["platform"]) == ("8.9", host_platform())
    assert (facts.arguments, facts.results, facts.refit) == (("in0", "in2"), ("out0",), False)
    require_loadable_version(facts, Machine.here(TENSORRT_RTX))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_plan_is_kept_without_a_gpu(engines: Path) -> None:
    """A call and a refit say what is missing, and TensorRT is not even imported for it."""
    module = compiled(nn.ReLU(), (torch.ones(2, 2),), engines)
    with pytest.raises(NoDeviceError, match="there is no NVIDIA GPU here"):
        module(torch.ones(2, 2))


def test_an_entry_of_another_version_is_built_again(engines: Path, tmp_path: Path) -> None:
    """A plan under the right key that says it is of another version is put aside, counted, and built anew."""
    root, model, args = tmp_path / "cache", nn.ReLU(), (torch.ones(2, 2),)
    entry = trtcache.Cache(engines).get(compiled(model, args, engines).report.partitions[0].key)  # type: ignore[arg-type]
    assert entry is not None
    members = {name: bytes(entry.read(name)) for name in entry.members}
    forged = {**json.loads(members[MEMBER]), "version": "0.9.0.1"}
    members[MEMBER] = json.dumps(forged).encode()
    trtcache.Cache(root).get_or_build_key(entry.key, lambda: members)
    partition = compiled(model, args, root).report.partitions[0]
    assert (partition.outcome, partition.reason) == ("built", "load")
    assert compiled(model, args, root).report.partitions[0].outcome == "hit"


class Bits:
    """TensorRT-RTX's runtime and module, as far as they say what a plan is."""

    EngineValidity = TENSORRT_RTX.load().EngineValidity
    EngineInvalidityDiagnostics = TENSORRT_RTX.load().EngineInvalidityDiagnostics

    def __init__(self, said: str, *names: str) -> None:
        self._said = getattr(self.EngineValidity, said)
        self._bits = sum(int(getattr(self.EngineInvalidityDiagnostics, name)) for name in names)

    def get_engine_validity(self, _plan: bytes) -> tuple[Any, int]:
        """Return what was set."""
        return self._said, self._bits


def test_what_rtx_says_of_a_plan_decides() -> None:
    """Valid and suboptimal ones are loaded; what this machine lacks is told, and what no machine runs is unfit."""
    for said in ("VALID", "SUBOPTIMAL"):
        assert why_invalid(Bits, Bits(said), b"") is None
    found = why_invalid(Bits, Bits("INVALID", "UNSUPPORTED_CC", "OLD_CUDA_DRIVER"), b"")
    assert found == "TensorRT-RTX cannot run it: unsupported cc, old cuda driver"
    for name in ("MALFORMED_ENGINE", "VERSION_MISMATCH"):
        with pytest.raises(IncompatibleEngineError, match=name.lower().replace("_", " ")):
            why_invalid(Bits, Bits("INVALID", name, "CUDA_ERROR"), b"")


def test_tensorrt_has_no_such_question() -> None:
    """Its bindings have no validity, and deserialising is what tells."""
    assert why_invalid(object(), object(), b"") is None


def test_no_driver_is_no_cuda() -> None:
    """A library that is not there, and one that is no driver."""
    assert driver_cuda("libcuda-that-is-not-there.so") is None
    assert driver_cuda("libc.so.6") is None


def test_a_plan_with_its_weights_in_it_takes_no_others() -> None:
    """A refit says what to do instead."""
    plan = object.__new__(LoadedPlan)
    plan._facts = FACTS
    with pytest.raises(RefitError, match="compile the model with the new weights"):
        plan.refit({})


def test_a_plan_that_no_machine_loads_is_unfit() -> None:
    """The check comes before TensorRT is asked, on machines without a GPU too."""
    facts = replace(FACTS, version="0.1")
    with pytest.raises(IncompatibleEngineError):
        load_plan(TENSORRT, b"", facts, device=torch.device("cpu"), weights={}, machine=replace(HERE, gpu=None))

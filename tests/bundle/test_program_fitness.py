"""Plans that cannot run here: a GPU, its capability, the driver, the version. The machine's facts are faked here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.backends.fitness import Distance, StoredTarget
from trtcache.backends.tensorrt import preflight
from trtcache.backends.tensorrt.backend import TensorRTRtx
from trtcache.backends.tensorrt.preflight import Machine
from trtcache.bundle.archive import choose, rank
from trtcache.errors import NoFittingEngineError
from trtcache.target import Gpu, host_platform

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = "1.4.0"
GPU = Gpu("NVIDIA L4", "8.9", 58, 22)


class _Flavour:
    """TensorRT-RTX, whether it is installed or not."""

    name, title, extra = "tensorrt_rtx", "TensorRT-RTX", "tensorrt-rtx"
    not_installed_message = "TensorRT-RTX is not installed"

    def __init__(self, *, installed: bool = True) -> None:
        self.installed = installed


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say what this machine is."""

    def say(*, gpu: Gpu | None = GPU, cuda: int | None = 13, version: str = VERSION, installed: bool = True) -> None:
        monkeypatch.setattr(TensorRTRtx, "flavour", _Flavour(installed=installed))
        here = Machine(version, host_platform(), gpu, cuda)
        monkeypatch.setattr(preflight.Machine, "here", classmethod(lambda *_: here))

    return say


def offer(number: int, capability: str, **target: Any) -> StoredTarget:
    """Return a plan for a capability, built by TensorRT-RTX for CUDA 13."""
    made = {"platform": host_platform(), "device": "cuda", "instruction_sets": [], "capability": capability, **target}
    facts = {
        "format": 1,
        "inputs": ["x"],
        "outputs": ["y"],
        "refit": False,
        "weights": {"refittable": []},
        "version": VERSION,
        "cuda": 13,
        "target": made,
    }
    label = f"cuda sm_{capability.replace('.', '')}"
    return StoredTarget(
        number, "tensorrt_rtx", label, made, {"tensorrt_rtx": VERSION}, lambda _: json.dumps(facts).encode()
    )


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no GPU": ({"gpu": None, "cuda": None}, "there is no NVIDIA GPU here", "run it on a machine with a GPU of sm_120"),
    "another GPU": (
        {},
        r"for sm_120, and the GPU here is NVIDIA L4 \(sm_89\)",
        "export it for this one: --target sm_89",
    ),
    "version": (
        {"version": "1.7.0"},
        r"version 1\.4\.0, and version 1\.7\.0 is installed",
        "install TensorRT-RTX 1.4.0",
    ),
    "not installed": ({"installed": False}, "is not installed", "pip install 'trtcache[tensorrt-rtx]'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_cannot_run_here_says_why(name: str, machine: Callable[..., None]) -> None:
    """Each has its own reason and the least there is to do."""
    said, why, remedy = REFUSED[name]
    machine(**said)
    with pytest.raises(NoFittingEngineError, match=why) as caught:
        choose([offer(0, "12.0")], "program.pt2")
    assert remedy in caught.value.remedy


def test_an_old_driver_is_told_from_another_gpu(machine: Callable[..., None]) -> None:
    """It is the least to do of all: the remedy is a later driver, whatever else there is in the file."""
    machine(cuda=12)
    with pytest.raises(
        NoFittingEngineError, match="needs a driver for CUDA 13, and the one here is for CUDA 12"
    ) as caught:
        choose([offer(0, "12.0"), offer(1, "8.9")], "program.pt2")
    assert caught.value.remedy == "install a later NVIDIA driver"


def test_a_plan_without_a_capability_needs_any_gpu(machine: Callable[..., None]) -> None:
    """Its target names none, so the remedy names none."""
    machine(gpu=None, cuda=None)
    with pytest.raises(NoFittingEngineError) as caught:
        choose([offer(0, "")], "program.pt2")
    assert caught.value.remedy == "run it on a machine with an NVIDIA GPU"


def test_a_plan_for_another_platform_needs_that_platform(machine: Callable[..., None]) -> None:
    """Another GPU would not help, and it is the most to do."""
    machine()
    misfit = TensorRTRtx().why_misfit(offer(0, "8.9", platform="linux-aarch64"))
    assert misfit is not None
    assert misfit.remedy == f"run it on linux-aarch64, or export it again on {host_platform()}"
    assert misfit.distance is Distance.PLATFORM


def test_the_plan_that_is_for_the_fewest_gpus_is_taken(machine: Callable[..., None]) -> None:
    """One for this product before one for its capability, before one for several, before one for a whole generation."""
    machine()
    offers = [
        offer(0, "ampere+"),
        offer(1, "8.6,8.9,12.0"),
        offer(2, "8.9"),
        offer(3, "12.0"),
        offer(4, "8.9", gpu=GPU.document()),
    ]
    order = []
    for _ in range(4):
        best = choose(offers, "program.pt2")
        order.append(best.number)
        offers.remove(best)
    assert order == [4, 2, 1, 0]
    assert rank(offer(0, "8.9")) > (False, 1000)

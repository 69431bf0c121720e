"""A model on another GPU than the current one: its target, and the GPU that its plan is built and loaded on."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.backends.tensorrt.test_preflight import FACTS
from trtcache.backends.fitness import gpu_here
from trtcache.backends.tensorrt import backend, build
from trtcache.backends.tensorrt.backend import TensorRT, TensorRTRtx
from trtcache.backends.tensorrt.preflight import Machine, PlanFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPUS = (
    SimpleNamespace(name="NVIDIA L4", major=8, minor=9, multi_processor_count=58, total_memory=24 << 30),
    SimpleNamespace(name="NVIDIA A100", major=8, minor=0, multi_processor_count=108, total_memory=80 << 30),
)
CPU, FIRST, SECOND, ANY = (torch.device(name) for name in ("cpu", "cuda:0", "cuda:1", "cuda"))


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for a machine with an L4, which is the current device, and an A100."""
    current = [0]

    @contextmanager
    def device(other: torch.device) -> Iterator[None]:
        before = current[0]
        current[0] = before if other.index is None else other.index
        try:
            yield
        finally:
            current[0] = before

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: GPUS[index])
    monkeypatch.setattr(torch.cuda, "device", device)


@pytest.mark.parametrize(
    ("device", "capability", "product"),
    [(CPU, "8.9", "NVIDIA L4"), (ANY, "8.9", "NVIDIA L4"), (FIRST, "8.9", "NVIDIA L4"), (SECOND, "8.0", "NVIDIA A100")],
    ids=str,
)
def test_the_target_is_the_models_gpu(device: torch.device, capability: str, product: str) -> None:
    """A model on the CPU gets the current one."""
    target = TensorRT().target(None, device)
    assert target.gpu is not None
    assert (target.capability, target.gpu.product) == (capability, product)
    assert TensorRTRtx().target(None, device).capability == capability


@pytest.mark.parametrize(("device", "product"), [(CPU, "NVIDIA L4"), (SECOND, "NVIDIA A100")], ids=str)
def test_a_plan_is_built_and_loaded_on_the_models_gpu(
    device: torch.device, product: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its kernels are timed there, and what it is compared with is that machine."""
    seen: list[Any] = []

    def build_plan(*_: Any, **__: Any) -> None:
        seen.append(gpu_here())

    def load_plan(flavour: Any, *_: Any, **__: Any) -> None:
        seen.append(Machine.here(flavour).gpu)

    monkeypatch.setattr(build, "build_plan", build_plan)
    monkeypatch.setattr(backend, "load_plan", load_plan)
    monkeypatch.setattr(PlanFacts, "read", lambda _: FACTS)
    rtx, program = TensorRTRtx(), SimpleNamespace(device=device)
    rtx.build(program, trtcache.Settings(), rtx.target(None, device), tmp_path)  # type: ignore[arg-type]  # what it needs of a program
    rtx.load_entry(lambda _: b"", device=device, constants={}, weights={})
    assert [one.product for one in seen] == [product, product]
    assert torch.cuda.current_device() == 0

"""Targets: which words a caller may use for each flavour, and what each one means."""

from __future__ import annotations

from typing import Any

import pytest

from trtcache.backends.tensorrt.flavour import TENSORRT, TENSORRT_RTX, Flavour, capabilities_of, plan_target
from trtcache.errors import SettingsError
from trtcache.target import Gpu

L4 = Gpu("NVIDIA L4", "8.9", 58, 22)
H100 = Gpu("NVIDIA H100", "9.0", 132, 80)
RTX_4090 = Gpu("NVIDIA GeForce RTX 4090", "8.9", 128, 24)


@pytest.mark.parametrize(
    ("requested", "capability"),
    [("sm_89", "8.9"), ("SM89", "8.9"), ("sm_120, sm_86,sm_89", "8.6,8.9,12.0"), ("sm_89,sm_89", "8.9")],
)
def test_rtx_builds_for_named_capabilities_whatever_gpu_is_here(requested: str, capability: str) -> None:
    """Order and repetition do not matter, and the product of this machine's GPU is no part of it."""
    made = plan_target(requested, TENSORRT_RTX, None)
    assert made == plan_target(requested, TENSORRT_RTX, RTX_4090)
    assert (made.capability, made.device, made.gpu) == (capability, "cuda", None)
    assert capabilities_of(made) == tuple(capability.split(","))


def test_without_a_word_the_gpu_at_hand_is_meant() -> None:
    """For RTX its capability; for TensorRT its product too, since two products of one capability want other kernels."""
    assert plan_target(None, TENSORRT_RTX, L4).document() == plan_target("sm_89", TENSORRT_RTX, None).document()
    one, other = plan_target(None, TENSORRT, L4), plan_target("sm_89", TENSORRT, RTX_4090)
    assert one.capability == other.capability
    assert one.document()["gpu"] == {"product": "NVIDIA L4", "multiprocessors": 58, "memory_gib": 22}
    assert one.document() != other.document()


def test_tensorrt_builds_for_generations_and_for_windows() -> None:
    """``ampere+`` is one target whatever GPU builds it; a Windows plan is for this machine's GPU."""
    assert plan_target("ampere+", TENSORRT, L4) == plan_target("ampere+", TENSORRT, RTX_4090)
    assert capabilities_of(plan_target("ampere+", TENSORRT, L4)) == ()
    assert plan_target("windows-x86_64", TENSORRT, L4).platform == "windows-x86_64"


@pytest.mark.parametrize(
    ("requested", "flavour", "gpu", "message"),
    [
        (None, TENSORRT_RTX, None, r"no NVIDIA GPU here; name what the plan is for: sm_75, .*sm_121"),
        ("sm_90", TENSORRT_RTX, None, r"TensorRT-RTX builds for sm_75, sm_80, sm_86, sm_89, sm_120, sm_121"),
        (None, TENSORRT_RTX, H100, r"NVIDIA H100.*: TensorRT-RTX builds for sm_75"),
        ("sm89x", TENSORRT_RTX, None, r"did you mean 'sm_89'"),
        (89, TENSORRT_RTX, None, r"target: expected text .*, got 89"),
        (b"sm_89", TENSORRT_RTX, None, r"expected text .*, got b'sm_89'"),
        (["sm_89"], TENSORRT_RTX, None, r"expected text .*, got \['sm_89'\]"),
        ("sm_89,", TENSORRT_RTX, None, r"a word is empty"),
        (" ", TENSORRT, L4, r"a word is empty"),
        ("ampere+", TENSORRT_RTX, None, r"no such plans; name several capabilities: sm_80,sm_86,sm_89"),
        ("windows-x86_64", TENSORRT_RTX, None, r"for the platform that it runs on"),
        ("sm_89", TENSORRT, None, r"no NVIDIA GPU here; build on the GPU's machine"),
        ("sm_90", TENSORRT, L4, r"builds for this machine's GPU only, NVIDIA L4 \(sm_89\)"),
        ("sm_86,sm_89", TENSORRT, L4, r"one GPU at a time"),
        ("ampere+,sm_89", TENSORRT, L4, r"name no other target"),
    ],
)
def test_what_a_flavour_cannot_build_for_is_refused(
    requested: Any, flavour: Flavour, gpu: Gpu | None, message: str
) -> None:
    """The error says what can be named instead."""
    with pytest.raises(SettingsError, match=message):
        plan_target(requested, flavour, gpu)

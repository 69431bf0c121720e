"""Targets of plans.

A target is a comma-separated list of words: compute capabilities (``sm_89``; several for one plan of TensorRT-RTX),
``ampere+`` for a plan that runs on that generation and all later ones, and a platform (``windows-x86_64``). None is
this machine's GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trtcache.errors import SettingsError, did_you_mean
from trtcache.target import Gpu, Target, capability_words, host_platform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtcache.backends.tensorrt.flavour import Flavour

AMPERE_PLUS = "ampere+"
WINDOWS = "windows-x86_64"

_CAPABILITY = re.compile(r"sm_?(\d+)(\d)")
_GIB = 1 << 30


def plan_target(requested: str | None, flavour: Flavour, gpu: Gpu | None) -> Target:
    """Return the requested target.

    Args:
        requested: the caller's words, or None for this machine's GPU.
        flavour: the TensorRT that builds.
        gpu: this machine's GPU, None if there is none.

    Raises:
        SettingsError: a word is not a target, the flavour cannot build for it here, or there is no GPU.
    """
    words = _words(requested)
    platform = host_platform()
    if WINDOWS in words:
        _reject_platform(flavour)
        words.remove(WINDOWS)
        platform = WINDOWS
    if AMPERE_PLUS in words:
        _reject_generations(flavour, words)
        return Target(platform, "cuda", "plan", (), AMPERE_PLUS)
    capabilities = tuple(sorted({_capability(word, flavour) for word in words}, key=_order))
    if len(capabilities) > 1 and not flavour.builds_without_gpu:
        raise SettingsError(f"target {requested!r}", f"{flavour.title} builds a plan for one GPU at a time")
    if flavour.builds_without_gpu and (capabilities or gpu):
        found = (gpu.capability,) if gpu else ()
        return Target(platform, "cuda", "plan", (), ",".join(capabilities or found))
    return _for_this_gpu(requested, platform, capabilities, flavour, gpu)


def _words(requested: str | None) -> list[str]:
    if requested is not None and not isinstance(requested, str):
        raise SettingsError("target", f"expected text such as 'sm_86,sm_89', got {requested!r}")
    words = [word.strip().lower() for word in requested.split(",")] if requested else []
    if not all(words):
        raise SettingsError(f"target {requested!r}", "a word is empty; put one comma between words: sm_86,sm_89")
    return words


def _for_this_gpu(
    requested: str | None, platform: str, capabilities: Sequence[str], flavour: Flavour, gpu: Gpu | None
) -> Target:
    label = f"target {requested!r}" if requested else "target"
    if gpu is None:
        known = ", ".join(map(capability_words, flavour.capabilities)) or "sm_89"
        remedy = f"name what the plan is for: {known}" if flavour.builds_without_gpu else "build on the GPU's machine"
        raise SettingsError(label, f"there is no NVIDIA GPU here; {remedy}")
    if capabilities and tuple(capabilities) != (gpu.capability,):
        raise SettingsError(
            label, f"{flavour.title} builds for the GPU at hand, {gpu.product} ({capability_words(gpu.capability)})"
        )
    return Target(platform, "cuda", "plan", (), gpu.capability, gpu)


def capabilities_of(target: Target) -> tuple[str, ...]:
    """Return the compute capabilities of a target; empty for ``ampere+``."""
    if target.capability is None or target.capability == AMPERE_PLUS:
        return ()
    return tuple(target.capability.split(","))


def gpu_here() -> Gpu | None:
    """Return the current CUDA device, None if torch has none."""
    import torch

    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    memory_gib = round(found.total_memory / _GIB)
    return Gpu(found.name, f"{found.major}.{found.minor}", found.multi_processor_count, memory_gib)


def _capability(word: str, flavour: Flavour) -> str:
    match = _CAPABILITY.fullmatch(word)
    known = [*map(capability_words, flavour.capabilities)]
    if match is None:
        raise SettingsError(f"target {word!r}", did_you_mean(word, [*(known or ["sm_89"]), AMPERE_PLUS, WINDOWS]))
    capability = f"{match[1]}.{match[2]}"
    if flavour.capabilities and capability not in flavour.capabilities:
        raise SettingsError(f"target {word!r}", f"{flavour.title} builds for {', '.join(known)}")
    return capability


def _order(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor)


def _reject_platform(flavour: Flavour) -> None:
    if flavour.builds_without_gpu:
        raise SettingsError(f"target {WINDOWS!r}", f"{flavour.title} builds for the platform that it runs on")


def _reject_generations(flavour: Flavour, words: Sequence[str]) -> None:
    label = f"target {AMPERE_PLUS!r}"
    if flavour.builds_without_gpu:
        several = ",".join(map(capability_words, flavour.capabilities[1:4]))
        raise SettingsError(label, f"{flavour.title} has no such plans; name several capabilities: {several}")
    if len(words) > 1:
        raise SettingsError(label, "it includes every GPU from Ampere on; name no other target")

"""Target of an engine: platform, device type, and the required instruction sets or compute capability."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import SettingsError, did_you_mean

# x86-64 psABI, "Micro-architecture levels", in the names of /proc/cpuinfo. Each level includes those before it.
_LEVELS: Mapping[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"),
    "x86-64-v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}

# Flags beyond the levels that g++ -march=native may use in vector code. Flags used by system code only
# (clflushopt, pku, rdrnd, ...) are left out: they differ between hypervisors and would only cost hits.
_VECTOR_FLAGS = frozenset(
    (
        *("adx", "aes", "gfni", "pclmulqdq", "sha_ni", "vaes", "vpclmulqdq", "fma4", "sse4a", "tbm", "xop"),
        *("avx512_4fmaps", "avx512_4vnniw", "avx512_bf16", "avx512_bitalg", "avx512_fp16", "avx512_vbmi2"),
        *("avx512_vnni", "avx512_vp2intersect", "avx512_vpopcntdq", "avx512er", "avx512ifma", "avx512pf", "avx512vbmi"),
        *("avx10_1", "avx10_2", "avx_ifma", "avx_ne_convert", "avx_vnni", "avx_vnni_int16", "avx_vnni_int8"),
        *("amx_bf16", "amx_complex", "amx_fp16", "amx_int8", "amx_tile"),
        *("asimd", "asimddp", "asimdfhm", "asimdhp", "atomics", "bf16", "fp", "fphp", "i8mm"),
        *("sme", "sme2", "sve", "sve2", "svebf16", "svei8mm"),
    )
)

_WITH_FLAGS = ("x86_64", "aarch64")  # other processors have no instruction sets in /proc/cpuinfo

_LONGEST_NAME = 100
_CPUINFO_BYTES = 1 << 14  # the first processor's record; a whole file takes tens of milliseconds on 128 cores


@frozen_dataclass
class Gpu:
    """A GPU model. Two products of one compute capability (an L4, an RTX 4090) need different kernels.

    Attributes:
        product: NVIDIA's product name.
        capability: CUDA compute capability.
        multiprocessors: number of multiprocessors.
        memory_gib: memory in GiB, rounded.
    """

    product: str
    capability: str
    multiprocessors: int
    memory_gib: int

    def document(self) -> dict[str, object]:
        """Return the GPU as part of the key."""
        return {"product": self.product, "multiprocessors": self.multiprocessors, "memory_gib": self.memory_gib}


@frozen_dataclass
class Target:
    """The kind of machine that an engine is built for.

    Attributes:
        platform: operating system and processor family, ``linux-x86_64``.
        device: ``cpu`` or ``cuda``.
        level: ``native`` (this machine's instruction sets), a named level such as ``x86-64-v3``, or ``plan`` if the
            processor does not matter.
        instruction_sets: required instruction sets in the names of /proc/cpuinfo, sorted.
        capability: CUDA compute capability (``9.0``), several (``8.6,8.9``), ``ampere+``, or None for a CPU.
        gpu: the GPU product, if the engine is specific to it.
    """

    platform: str
    device: str
    level: str
    instruction_sets: tuple[str, ...]
    capability: str | None = None
    gpu: Gpu | None = None

    @property
    def label(self) -> str:
        """The target in readable form."""
        capability = f" {capability_words(self.capability)}" if self.capability else ""
        return f"{self.device}{capability}, {self.platform} {self.level}"

    def document(self) -> dict[str, object]:
        """Return the part of the key document for this target. It contains no path, host, user or device index."""
        document: dict[str, object] = {
            "platform": self.platform,
            "device": self.device,
            "level": self.level,
            "instruction_sets": self.instruction_sets,
            "capability": self.capability,
        }
        return {**document, "gpu": self.gpu.document()} if self.gpu else document

    def lacks(self, available: Iterable[str]) -> tuple[str, ...]:
        """Return the required instruction sets that are missing from ``available``."""
        return tuple(sorted(set(self.instruction_sets) - set(available)))


def label_of(document: Mapping[str, Any]) -> str:
    """Return the target in a key document in readable form, empty if there is none.

    A native target is named with the level of its instruction sets. The document can be that of a stranger.
    """
    parts = document.get("parts")
    found = parts.get("target") if isinstance(parts, dict) else None
    if not isinstance(found, dict):
        return ""
    text = {name: str(found.get(name) or "")[:_LONGEST_NAME] for name in ("platform", "device", "level", "capability")}
    sets = found.get("instruction_sets")
    level, names = text["level"], tuple(map(str, sets)) if isinstance(sets, list | tuple) else ()
    if level == "native" and text["platform"].endswith("x86_64"):
        level = f"native ({levels_of(names)[0]})"
    gpu = found.get("gpu")
    product = f", {gpu.get('product')}"[:_LONGEST_NAME] if isinstance(gpu, dict) else ""
    label = Target(text["platform"], text["device"], level, names, text["capability"] or None).label + product
    return label.encode(errors="replace").decode()  # a lone surrogate, which the index could not store


def capability_words(capabilities: str) -> str:
    """Return ``sm_86,sm_89`` for ``8.6,8.9``; other names (``ampere+``) are unchanged."""
    return ",".join(f"sm_{name.replace('.', '')}" if "." in name else name for name in capabilities.split(","))


def resolve_target(requested: str | None, *, device: str, capability: str | None = None) -> Target:
    """Return the target for ``None`` or ``native`` (this machine), or for the name of a level.

    Raises:
        SettingsError: it is not a string, the name is unknown, or this machine lacks a required instruction set.
    """
    if requested is not None and not isinstance(requested, str):
        raise SettingsError("target", f"expected a string such as 'x86-64-v3', got {requested!r}")
    level = requested or "native"
    if level == "native":
        if sys.platform == "linux" and platform.machine() in _WITH_FLAGS and not host_flags():
            why = "the instruction sets of this machine's processor cannot be read from /proc/cpuinfo"
            raise SettingsError(f"target {level!r}", f"{why}, and engines of two processors would share a key")
        needed = sorted(host_flags() & (_VECTOR_FLAGS | _level_flags("x86-64-v4")))
    elif level in _LEVELS and platform.machine() == "x86_64":
        needed = sorted(_level_flags(level))
    else:
        raise SettingsError(f"target {requested!r}", did_you_mean(level, ["native", *_LEVELS]))
    target = Target(host_platform(), device, level, tuple(needed), capability)
    if missing := target.lacks(host_flags()):
        raise SettingsError(f"target {level!r}", f"this machine's processor lacks {', '.join(missing)}")
    return target


def _level_flags(level: str) -> frozenset[str]:
    names = list(_LEVELS)
    return frozenset(flag for name in names[: names.index(level) + 1] for flag in _LEVELS[name])


def host_platform() -> str:
    """Return this machine's operating system and processor family, ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}"


@functools.cache
def host_flags() -> frozenset[str]:
    """Return the instruction sets of this machine's processor from /proc/cpuinfo; empty if it has none."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            text = file.read(_CPUINFO_BYTES)
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(flags.split())
    return frozenset()


def levels_of(flags: Iterable[str]) -> list[str]:
    """Return the x86-64 levels supported by a processor with these instruction sets, highest first."""
    available = set(flags)
    return [level for level in reversed(list(_LEVELS)) if _level_flags(level) <= available]

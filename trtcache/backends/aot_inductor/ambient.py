"""What the process says to Inductor outside ``Settings``: torch's flags, its configuration module, its environment.

``torch._inductor.config`` costs a second to import. While nobody has imported it nobody has changed it, so then only
the environment speaks; both ways give the same answer for the same configuration.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

_PREFIX = "TORCHINDUCTOR_"

# Where Inductor keeps its own caches, how it spreads its work, and what it logs: none of it is in a package.
_IRRELEVANT = (
    "AUTOGRAD_",
    "CACHE_",
    "COMPILE_",
    "FORCE_DISABLE_CACHES",
    "FX_GRAPH_",
    "QUIESCE_",
    "REDIS_",
    "SKIP_L1",
    "WORKER_",
    "WRITE_",
)

_WRITTEN_BY_BUILDS = ("aot_inductor.metadata",)  # torch/_inductor/compile_fx.py notes the last package's device in it

_OTHER_VARIABLES = ("ATEN_CPU_CAPABILITY",)  # torch/_inductor/cpu_vec_isa.py picks vector code by it

# Inductor chooses the kernel of scaled_dot_product_attention when it builds.
_ATTENTION_KERNELS: Mapping[str, Callable[[], bool]] = {
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
    "mem_efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
}


def ambient() -> dict[str, object]:
    """Return the part of the key that process-wide state is."""
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "attention": {name: bool(enabled()) for name, enabled in _ATTENTION_KERNELS.items()},
        "environment": environment(os.environ),
        "inductor": dict(sorted(overrides(sys.modules.get("torch._inductor.config")))),
    }


def matmul_precision() -> str:
    """Return how precise matrix products are to be, also where that was said in the newer of torch's two ways.

    ``torch.get_float32_matmul_precision`` raises then, as soon as the two differ (torch 2.13).
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        devices: Any = {"cuda": torch.backends.cuda, "mkldnn": torch.backends.mkldnn}
        return ", ".join(f"{name} {one.matmul.fp32_precision}" for name, one in devices.items())


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which an environment changes what Inductor builds."""
    names = [name for name in environ if name.startswith(_PREFIX) and not name.startswith(_prefixed())]
    return {name: environ[name] for name in sorted({*names, *(set(_OTHER_VARIABLES) & set(environ))})}


def _prefixed() -> tuple[str, ...]:
    return tuple(_PREFIX + name for name in _IRRELEVANT)


def overrides(config: ModuleType | None) -> Iterator[tuple[str, object]]:
    """Yield options that this process set to something else than their default or their environment's value."""
    entries: Mapping[str, Any] = getattr(config, "_config", {})
    ignored = (*getattr(config, "_cache_config_ignore_prefix", ()), *_WRITTEN_BY_BUILDS)
    for name, entry in entries.items():
        override = entry.user_override
        value = override.get() if isinstance(override, ContextVar) else override  # torch 2.11: the value itself
        if not _unset(value) and not name.startswith(ignored) and value not in _defaults(entry):
            yield name, value


def _defaults(entry: Any) -> list[object]:
    values = (entry.default, entry.env_value_default, entry.env_value_force)
    return [value for value in values if not _unset(value)]


def _unset(value: object) -> bool:
    from torch.utils import _config_module

    return value is _config_module._UNSET_SENTINEL

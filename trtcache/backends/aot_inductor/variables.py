"""Environment variables that affect Inductor's builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "TORCHINDUCTOR_"
# Inductor's own caches, worker processes and logging: none of these affect a package.
_IGNORED = (
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
_OTHER_NAMES = ("ATEN_CPU_CAPABILITY",)  # torch/_inductor/cpu_vec_isa.py selects vector instructions by it
_TORCH_PREFIXES = ("TORCH_", "PYTORCH_", "ATEN_")


INITIAL_AMBIENT: Final[Mapping[str, object]] = {
    "deterministic": False,
    "float32_matmul_precision": "highest",
    "mkldnn": True,
    "attention": {"cudnn": True, "flash": True, "math": True, "mem_efficient": True},
    "inductor": {},
}
"""What ``aot_inductor.backend.ambient`` returns right after torch was imported, without the environment."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that affect Inductor's builds."""
    ignored = tuple(_PREFIX + name for name in _IGNORED)
    names = [name for name in environ if name.startswith(_PREFIX) and not name.startswith(ignored)]
    return {name: environ[name] for name in sorted({*names, *(set(_OTHER_NAMES) & set(environ))})}


def torch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return all variables that may affect torch's state or Inductor's builds: a superset of ``environment``."""
    others = {name: value for name, value in environ.items() if name.startswith(_TORCH_PREFIXES)}
    return others | environment(environ)

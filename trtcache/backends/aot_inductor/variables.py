"""Environment variables that affect Inductor's builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "TORCHINDUCTOR_"
# These are few, and most change the code of packages, as AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER does.
_OTHER_PREFIXES = ("AOT_INDUCTOR_", "AOTINDUCTOR_", "INDUCTOR_")
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
# Other variables that torch/_inductor and torch/_functorch read for the code that they generate (torch 2.13). CI is not
# one of them: caches are often filled there, and it affects only a warning and backward passes. Nor is CXX: machines
# that only run packages have no compiler (docs/adr/0003).
_OTHER_NAMES = frozenset(
    {
        "ATEN_CPU_CAPABILITY",  # torch/_inductor/cpu_vec_isa.py selects vector instructions by it
        "CUTEDSL_ENABLE_AUTOTUNING",
        "CUTLASS_EPILOGUE_FUSION",
        "ENABLE_PERSISTENT_TMA_MATMUL",
        "ENABLE_TEMPLATE_TMA_STORE",
        "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
        "FAKE_ALLOW_META",
        "PYTORCH_REORDER_COLLECTIVES_LIMIT",
        "PYTORCH_SINK_WAITS_LIMIT",
        "TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2",
        "TORCH_COMPILE_DEBUG",  # debug handles in the code, as with INDUCTOR_PROVENANCE
        "TRITON_INTERPRET",
        "TRITON_USE_META_WS",
    }
)
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
    names += [name for name in environ if name.startswith(_OTHER_PREFIXES) or name in _OTHER_NAMES]
    return {name: environ[name] for name in sorted(names)}


def torch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return all variables that may affect torch's state or Inductor's builds: a superset of ``environment``."""
    others = {name: value for name, value in environ.items() if name.startswith(_TORCH_PREFIXES)}
    return others | environment(environ)

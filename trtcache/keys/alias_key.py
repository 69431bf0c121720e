"""The keys of key aliases, and torch's state as it begins. A process needs no torch to know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trtcache.digests import CacheKey
from trtcache.keys.code import backend_code, code_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trtcache.backends.protocol import Backend

KIND: Final = "alias"
MEMBER: Final = "alias.json"

_FORMAT = 4

INITIAL_STATE: Final[Mapping[str, object]] = {
    "dtype": "torch.float32",
    "device": "cpu",
    "autocast": [[False, "torch.bfloat16"], [False, "torch.float16"]],
    "deterministic": False,
    "attention": [True, True, True, True],
}
"""``keys.key.process_state``, as torch begins."""


def make_alias_key(
    fingerprint: Mapping[str, object],
    option_parts: Mapping[str, object],
    *,
    backend: Backend,
    device_type: str,
    torch_executed_modules: Collection[str],
    torch: Sequence[str | None],
    other_passes: Sequence[str],
    process: Mapping[str, object],
) -> CacheKey:
    """Return the key of an alias, from everything that the cache key depends on and that is known without lowering.

    Args:
        fingerprint: the program's fingerprint (``Source.fingerprint``).
        option_parts: the parts of the cache key that only the options and this machine determine: settings, target,
            toolchain, ambient.
        backend: the backend that builds.
        device_type: ``cpu`` or ``cuda``, where the program runs.
        torch_executed_modules: the one setting that changes the cache key without being part of it.
        torch: the version of torch and of its source.
        other_passes: the specs of the passes of other distributions.
        process: torch's global state.
    """
    capabilities = backend.capabilities
    return CacheKey.of(
        KIND,
        {
            "weights": None,
            **fingerprint,
            **option_parts,
            "format": _FORMAT,
            "backend": backend.name,
            "torch_executed_modules": sorted(torch_executed_modules),
            "device": device_type,
            "torch": torch,
            "code": code_digest(),
            **backend_code(type(backend)),
            "passes": {
                "keep": sorted(capabilities.keep),
                "unpack": sorted(capabilities.unpack),
                "others": other_passes,
            },
            "process": process,
        },
    )

"""An engine cache for inference: ccache for TensorRT, TensorRT-RTX and AOTInductor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache import errors as errors
    from trtcache.bundle.export import export as export
    from trtcache.bundle.load import load as load
    from trtcache.cache import Cache as Cache
    from trtcache.compiler.inspect import key as key
    from trtcache.compiler.inspect import lower as lower
    from trtcache.config.threads import threads as threads
    from trtcache.digests import CacheKey as CacheKey
    from trtcache.digests import Digest as Digest
    from trtcache.digests import digest as digest
    from trtcache.errors import TrtcacheError as TrtcacheError
    from trtcache.integrations.torch_tensorrt import install as install
    from trtcache.integrations.torch_tensorrt import uninstall as uninstall
    from trtcache.lowering.arguments import Input as Input
    from trtcache.progress import Step as Step
    from trtcache.progress import watching as watching
    from trtcache.public import compile as compile  # noqa: A004  # named like torch.compile
    from trtcache.remote.uploads import flush as flush
    from trtcache.runtime import CompiledModule as CompiledModule
    from trtcache.runtime.program import Program as Program
    from trtcache.settings import Settings as Settings
    from trtcache.store.entry import Entry as Entry

    __version__: str

# Loaded when first used: a program that only hits needs neither SQLAlchemy nor, behind its own builder, torch.
_EXPORTS = {
    "Cache": "trtcache.cache",
    "CacheKey": "trtcache.digests",
    "CompiledModule": "trtcache.runtime",
    "Digest": "trtcache.digests",
    "Entry": "trtcache.store.entry",
    "Input": "trtcache.lowering.arguments",
    "Program": "trtcache.runtime.program",
    "Settings": "trtcache.settings",
    "Step": "trtcache.progress",
    "TrtcacheError": "trtcache.errors",
    "compile": "trtcache.public",
    "digest": "trtcache.digests",
    "export": "trtcache.bundle.export",
    "flush": "trtcache.remote.uploads",
    "install": "trtcache.integrations.torch_tensorrt",
    "key": "trtcache.compiler.inspect",
    "load": "trtcache.bundle.load",
    "lower": "trtcache.compiler.inspect",
    "threads": "trtcache.config.threads",
    "uninstall": "trtcache.integrations.torch_tensorrt",
    "watching": "trtcache.progress",
}

_WITH_TORCH = frozenset({"CompiledModule", "Input", "export", "key", "lower"})

__all__ = ["__version__", "errors", *sorted(_EXPORTS)]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from trtcache.config.environment import installed_version

        value: object = installed_version()
    elif name == "errors":
        value = import_module("trtcache.errors")
    elif name in _EXPORTS:
        from trtcache.config import paused_collector
        from trtcache.config.imports import timed_imports

        if name in _WITH_TORCH:
            from trtcache.config.environment import require_torch_allowed

            require_torch_allowed(f"trtcache.{name}", "trtcache.load and trtcache.compile of files do without it")
        with paused_collector(), timed_imports():
            value = getattr(import_module(_EXPORTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""An engine cache for inference: ccache for TensorRT, TensorRT-RTX and AOTInductor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtcache.api import compile as compile  # noqa: A004  # the front door's name
    from trtcache.cache import Cache as Cache
    from trtcache.doors.files import export as export
    from trtcache.doors.files import load as load
    from trtcache.doors.looking import key as key
    from trtcache.doors.looking import lower as lower
    from trtcache.inputs import Input as Input
    from trtcache.integrations.torch_tensorrt import install as install
    from trtcache.integrations.torch_tensorrt import uninstall as uninstall
    from trtcache.progress import Step as Step
    from trtcache.progress import watching as watching
    from trtcache.runtime import CompiledModule as CompiledModule
    from trtcache.settings import Settings as Settings
    from trtcache.store.entry import Entry as Entry
    from trtcache.thread_counts import threads as threads
    from trtcache.values import CacheKey as CacheKey
    from trtcache.values import Digest as Digest
    from trtcache.values import digest as digest

    __version__: str

# Loaded when first used: a program that only hits needs neither SQLAlchemy nor, behind its own builder, torch.
_EXPORTS = {
    "Cache": "trtcache.cache",
    "CacheKey": "trtcache.values",
    "CompiledModule": "trtcache.runtime",
    "Digest": "trtcache.values",
    "Entry": "trtcache.store.entry",
    "Input": "trtcache.inputs",
    "Settings": "trtcache.settings",
    "Step": "trtcache.progress",
    "compile": "trtcache.api",
    "digest": "trtcache.values",
    "export": "trtcache.doors.files",
    "install": "trtcache.integrations.torch_tensorrt",
    "key": "trtcache.doors.looking",
    "load": "trtcache.doors.files",
    "lower": "trtcache.doors.looking",
    "threads": "trtcache.thread_counts",
    "uninstall": "trtcache.integrations.torch_tensorrt",
    "watching": "trtcache.progress",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from trtcache.version import installed_version

        value: object = installed_version()
    elif name in _EXPORTS:
        value = getattr(import_module(_EXPORTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

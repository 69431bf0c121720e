"""Cache for unmodified torch_tensorrt programs: ``trtcache run serve.py``, or ``trtcache.install()`` in the script.

``EngineCache`` is an alternative for ``torch_tensorrt.compile(custom_engine_cache=...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.integrations.torch_tensorrt.engine_cache import EngineCache as EngineCache
    from trtcache.integrations.torch_tensorrt.installation import install as install
    from trtcache.integrations.torch_tensorrt.installation import uninstall as uninstall

# Loaded when first used: EngineCache needs torch_tensorrt, and installing must not import torch.
_EXPORTS = {"EngineCache": ".engine_cache", "install": ".installation", "uninstall": ".installation"}

__all__ = ["EngineCache", "install", "uninstall"]


__getattr__ = lazy_names(__name__, _EXPORTS)

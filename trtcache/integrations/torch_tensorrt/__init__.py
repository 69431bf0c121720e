"""Cache for unmodified torch_tensorrt programs: ``trtcache run serve.py``, or ``trtcache.install()`` in the script.

``EngineCache`` is an alternative for ``torch_tensorrt.compile(custom_engine_cache=...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.config.imports import lazy_names

if TYPE_CHECKING:
    from trtcache.integrations.torch_tensorrt.installation import install as install
    from trtcache.integrations.torch_tensorrt.installation import uninstall as uninstall
    from trtcache.integrations.torch_tensorrt.results import EngineCache as EngineCache

# Loaded when first used: EngineCache needs torch_tensorrt, and installing must not import torch.
_EXPORTS = {"EngineCache": ".results", "install": ".installation", "uninstall": ".installation"}

__all__ = ["EngineCache", "install", "uninstall"]


__getattr__ = lazy_names(__name__, _EXPORTS)

"""What builds an engine of torch_tensorrt: the exact versions of all of it, and the plugins that are registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from types import ModuleType

_ADAPTER = 1
"""What the adapter stores of a build. It changes whenever an entry of before would serve otherwise."""


def toolchain_document(torch_tensorrt: ModuleType, tensorrt: ModuleType) -> dict[str, Any]:
    """Return the part of the key document that the toolchain is."""
    features = torch_tensorrt.ENABLED_FEATURES
    return {
        "adapter": _ADAPTER,
        "torch_tensorrt": str(torch_tensorrt.__version__),
        "tensorrt": str(tensorrt.__version__),
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "features": {str(name): bool(value) for name, value in features._asdict().items()},
        "plugins": plugins(tensorrt),
    }


def plugins(tensorrt: ModuleType) -> list[list[str]]:
    """Return namespace, name and version of every plugin that is registered: a library that was loaded shows here."""
    registry = tensorrt.get_plugin_registry()
    creators = getattr(registry, "all_creators", None) or getattr(registry, "plugin_creator_list", None) or ()
    return sorted([str(one.plugin_namespace), str(one.name), str(one.plugin_version)] for one in creators)

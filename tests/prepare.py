"""The request that ``trtcache.compile`` would look up, for tests of keys and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trtcache.frontends.exported import ModuleSource
from trtcache.frontends.source import CompileOptions

if TYPE_CHECKING:
    import torch

    from trtcache.frontends.request import TorchRequest
    from trtcache.settings import Settings


def prepare(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    *,
    dynamic_shapes: Any = None,
    backend: str = "auto",
    settings: Settings | None = None,
    target: str | None = None,
    name: str | None = None,
) -> TorchRequest:
    """Export and lower a module, and return it with its key; nothing is built."""
    source = ModuleSource(model, args, None, dynamic_shapes, name=name)
    return source.request(CompileOptions.of(backend, settings, target))

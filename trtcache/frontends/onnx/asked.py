"""What a caller asks of an ONNX file: a backend, a target, settings, and sizes for what the file leaves open."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trtcache.backends import registry
from trtcache.errors import BackendUnavailableError, SettingsError
from trtcache.frontends.onnx.ports import Sizes, is_input
from trtcache.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.backend import TensorRTBackend
    from trtcache.target import Target

log = logging.getLogger(__name__)

BACKENDS = ("tensorrt", "tensorrt_rtx")
"""Backends that read ONNX, in the order in which ``auto`` tries them."""

_OF_TORCH = frozenset({"torch", "onnx", "onnxscript"})
"""Parts of the toolchain by which programs of torch become ONNX."""

_NOT_FOR_FILES = {
    "autocast": "precision is in the file: convert the model, or export it in that precision",
    "autocast_exclude": "precision is in the file: convert the model, or export it in that precision",
    "inductor": "no backend that reads ONNX files uses Inductor",
    "torch_executed_modules": "a file has no modules, and all of it is one plan",
    "torch_executed_ops": "all of a file is one plan",
    "min_block_size": "all of a file is one plan",
    "on_build_failure": "torch does not run ONNX",
}
_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Asked:
    """A caller's wishes.

    Attributes:
        backend: who builds.
        settings: of the build.
        target: what the plan is for.
        args: for inputs in the file's order: an ``Input``, ``Sizes``, a tensor, an array, or None.
        kwargs: the same by name.
    """

    backend: TensorRTBackend
    settings: Settings
    target: Target
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        backend: str,
        settings: Settings,
        target: str | None,
        device: torch.device,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Asked:
        """Return what a caller asks.

        Raises:
            BackendUnavailableError: the backend does not read ONNX, is unknown, or cannot build here.
            SettingsError: a setting or the target is unknown, or is not for files.
        """
        chosen = _chosen(backend)
        for name, why in _NOT_FOR_FILES.items():
            given = getattr(settings, name)
            if given and given != getattr(_DEFAULTS, name):
                raise SettingsError(f"settings.{name}", why)
        chosen.check(settings)
        return cls(chosen, settings, chosen.target(target, device), tuple(args), dict(kwargs or {}))

    def parts(self) -> dict[str, object]:
        """Return the parts of a key that do not depend on the file."""
        toolchain = self.backend.toolchain("cuda")
        return {
            "settings": self.settings.document(),
            "ambient": self.backend.ambient(),
            "target": self.target.document(),
            "toolchain": {name: value for name, value in toolchain.items() if name not in _OF_TORCH},
        }

    def sizes(self) -> dict[str, object]:
        """Return what was given for inputs, as a part of a memo's key."""
        return {
            "args": [_written(one) for one in self.args],
            "kwargs": {name: _written(one) for name, one in self.kwargs.items()},
        }


def _chosen(backend: str) -> Any:
    if backend not in {"auto", *BACKENDS}:
        registry.find(backend, "cpu")  # an unknown name is told
        raise BackendUnavailableError(
            backend, f"it builds from torch programs, and ONNX files are for {' and '.join(BACKENDS)}"
        )
    reasons = []
    for name in BACKENDS if backend == "auto" else (backend,):
        try:
            found = registry.find(name, "cuda")
        except BackendUnavailableError as error:
            reasons.append(error)
            continue
        log.info("backend %s: chose %s for an ONNX file", backend, name)
        return found
    if backend != "auto":
        raise reasons[0]
    raise BackendUnavailableError("auto", f"an ONNX file needs one of these: {'; '.join(map(str, reasons))}")


def _written(given: Any) -> object:
    if is_input(given):
        return [str(given.dtype), *map(list, given.bounds())]
    if isinstance(given, Sizes):
        return ["", list(given.least), list(given.usual), list(given.most)]
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        return [str(given.dtype), [int(size) for size in given.shape]]
    return None if given is None else repr(type(given))

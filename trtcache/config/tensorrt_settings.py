"""Build settings of TensorRT and TensorRT-RTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from trtcache.config.backend_settings import BackendSettings
from trtcache.config.units import dataclass_from, parse_size
from trtcache.errors import SettingsError

TILINGS = ("none", "fast", "moderate", "full")
VERBOSITIES = ("layer_names_only", "none", "detailed")
CHOICES = ("exact", "capability")

NOT_IN_KEY = frozenset({"compatible"})
"""Settings that select cached entries without changing a plan."""

_SIZES_END = 1 << 63  # TensorRT takes a size_t, and fails to build from this value on
_BOOLEANS = ("refit", "strip", "version_compatible", "tf32", "sparse_weights")
_RANGES = {"optimization_level": (0, 5), "max_aux_streams": (0, 64), "avg_timing_iterations": (1, 64)}
_WORDS = {"tiling": TILINGS, "profiling_verbosity": VERBOSITIES, "compatible": CHOICES}


@dataclass(frozen=True, slots=True)
class TensorRTSettings(BackendSettings):
    """Settings of a TensorRT build. None leaves a setting to TensorRT, and is not part of the key.

    Attributes:
        optimization_level: builder optimization level, 0 to 5.
        refit: whether the plan is refittable. None is yes for TensorRT, and no for TensorRT-RTX, which builds such
            plans on a GPU only. The weights of a plan that is not refittable are part of its key.
        strip: leave the weights out of the plan, which then has to be refitted before it runs.
        version_compatible: build a plan for later minor versions too.
        workspace: workspace limit for a layer's intermediate results, in bytes or as text (``2GB``).
        tf32: whether float32 products may round their factors to TF32.
        sparse_weights: look for kernels that use 2:4 sparsity.
        tiling: effort for tilings that keep results in the L2 cache: ``none``, ``fast``, ``moderate``, ``full``.
        max_aux_streams: maximum number of streams that a plan uses besides the caller's.
        profiling_verbosity: layer information stored in the plan: ``layer_names_only``, ``none``, ``detailed``.
        avg_timing_iterations: how often a kernel is timed.
        compatible: which plans ``compile`` takes from the cache: those for this GPU's product only (``exact``, the
            default), or otherwise also one for another product of the same compute capability (``capability``), which
            may be slower and is reported. Not part of the key.
    """

    section: ClassVar[str] = "tensorrt"

    optimization_level: int | None = None
    refit: bool | None = None
    strip: bool | None = None
    version_compatible: bool | None = None
    workspace: int | str | None = None
    tf32: bool | None = None
    sparse_weights: bool | None = None
    tiling: str | None = None
    max_aux_streams: int | None = None
    profiling_verbosity: str | None = None
    avg_timing_iterations: int | None = None
    compatible: str | None = None

    def __post_init__(self) -> None:
        for name in _BOOLEANS:
            _check(name, getattr(self, name), "True or False", type_=bool)
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            _check(name, value, f"a number from {least} to {most}", type_=int)
            if value is not None and not least <= value <= most:
                raise SettingsError(_label(name), f"{value} is not from {least} to {most}")
        for name, words in _WORDS.items():
            value = getattr(self, name)
            if value is not None and value not in words:
                raise SettingsError(_label(name), f"{value!r} is not one of {', '.join(words)}")
        if self.workspace is not None:
            size_bytes = parse_size(self.workspace, _label("workspace"))
            if not 0 < size_bytes < _SIZES_END:
                raise SettingsError(_label("workspace"), f"{self.workspace!r} is not from 1 byte to less than 2^63")
            object.__setattr__(self, "workspace", size_bytes)
        if self.strip and self.refit is False:
            raise SettingsError(_label("strip"), "a plan without weights has to be refitted; leave refit out")

    @classmethod
    def of(cls, given: object) -> Self:
        """Return settings from settings or from a mapping of field names."""
        return dataclass_from(cls, given, "settings.tensorrt")

    def document(self) -> dict[str, object]:
        """Return the part of the key document for these settings: those that are set and change a plan."""
        return {name: value for name, value in self.explicit.items() if name not in NOT_IN_KEY}


def _label(name: str) -> str:
    return f"settings.tensorrt[{name!r}]"


def _check(name: str, value: object, expected: str, *, type_: type) -> None:
    if value is not None and type(value) is not type_:
        raise SettingsError(_label(name), f"expected {expected}, got {value!r}")

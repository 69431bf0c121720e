"""What a caller can say about a build. Every field enters the key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from trtcache.errors import SettingsError
from trtcache.named_fields import made_of
from trtcache.tensorrt_settings import TensorRTSettings
from trtcache.thread_counts import Threads

Option: TypeAlias = bool | int | float | str

PINNED_INDUCTOR_OPTIONS: Mapping[str, Option] = {
    # Without this an LSTM was silently wrong after a refit: a small bias had been inlined as a number.
    "always_keep_tensor_constants": True,
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    # Folds constants at load under names that no weight map knows.
    "aot_inductor.use_runtime_constant_folding": False,
    # Loses every slot.
    "freezing": False,
    # Computes with the values of weights of one element, which are none while a package is built
    # (torch/_inductor/fx_passes/joint_graph.py, constant_fold_uniform_value): x * t.exp() was off by any amount.
    "joint_graph_constant_folding": False,
    # The number of threads is a matter of the process that runs, not of the one that builds.
    "cpp.dynamic_threads": True,
}
"""Inductor options that refit, sharing and the key rely on; ``Settings.inductor`` cannot name them."""


IN_THE_GRAPH = frozenset({"torch_executed_modules"})
"""Fields that are no part of the key by themselves: all that they do is to mark nodes, and marks are in the key."""


AT_RUN_TIME = frozenset({"threads"})
"""Fields that say how engines run and not what they are: code is always built for any number of threads."""

AUTOCASTS = ("fp16", "bf16")

_LEFT_OUT = IN_THE_GRAPH | AT_RUN_TIME

_LATER = frozenset({"autocast", "autocast_exclude", "tensorrt"})
"""Fields that came later: left out of a key where they say nothing, so that they leave older keys as they are."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a build.

    Attributes:
        inductor: options of ``torch._inductor.config`` for the ``aot_inductor`` backend, by dotted name
            (``{"max_autotune": True}``).
        operator_versions: versions of custom operators, by name (``{"mylib::scale": "1.2"}``) or by namespace
            (``{"mylib": "1.2"}``). What such an operator computes cannot be seen from a program, so a program with one
            is cached only if this says which one it is. Change it when the operator changes.
        torch_executed_modules: modules whose operators stay in torch, by path (``encoder.layer.0``) or by class
            (``torch.nn.modules.activation.GELU``). The graph says which operators those are, so a program of renamed
            modules keeps its key.
        autocast: ``fp16`` or ``bf16``: the precision in which matrix products and convolutions of a float32 program
            are computed, and what lies between; norms, softmax and sums stay in float32, and results keep their dtypes.
        autocast_exclude: operators that ``autocast`` leaves as they are, by name (``aten.convolution``).
        tensorrt: settings of the ``tensorrt`` and ``tensorrt_rtx`` backends, ``TensorRTSettings`` or a mapping of its
            fields (``{"optimization_level": 5}``).
        threads: how many threads work on a call, and how many calls run side by side, ``Threads`` or a mapping of its
            fields (``{"intra": 1}``). Not in the key. ``trtcache.threads`` is over it, torch's own number under it.
    """

    inductor: Mapping[str, Option] = field(default_factory=dict)
    operator_versions: Mapping[str, str] = field(default_factory=dict)
    torch_executed_modules: Collection[str] = ()
    autocast: str | None = None
    autocast_exclude: Collection[str] = ()
    tensorrt: TensorRTSettings = field(default_factory=TensorRTSettings)
    threads: Threads = field(default_factory=Threads)

    def __post_init__(self) -> None:
        if not isinstance(self.inductor, Mapping):
            raise SettingsError("settings.inductor", f"expected a mapping of option names, got {self.inductor!r}")
        for name, value in self.inductor.items():
            if name in PINNED_INDUCTOR_OPTIONS:
                raise SettingsError(f"settings.inductor[{name!r}]", "fixed by trtcache: refit relies on its value")
            if not isinstance(value, (bool, int, float, str)):
                raise SettingsError(f"settings.inductor[{name!r}]", f"{value!r} is no boolean, number or text")
        self._check_names()
        object.__setattr__(self, "tensorrt", TensorRTSettings.of(self.tensorrt))
        object.__setattr__(self, "threads", Threads.of(self.threads))

    def _check_names(self) -> None:
        if not isinstance(self.operator_versions, Mapping):
            raise SettingsError("settings.operator_versions", f"expected a mapping, got {self.operator_versions!r}")
        for name, version in self.operator_versions.items():
            if not isinstance(version, str):
                raise SettingsError(f"settings.operator_versions[{name!r}]", f"{version!r} is no text")
        modules = self.torch_executed_modules
        if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
            raise SettingsError("settings.torch_executed_modules", f"expected names of modules, got {modules!r}")
        if self.autocast not in (None, *AUTOCASTS):
            raise SettingsError("settings.autocast", f"{self.autocast!r} is none of {', '.join(AUTOCASTS)}")
        if isinstance(self.autocast_exclude, str) or not all(isinstance(one, str) for one in self.autocast_exclude):
            raise SettingsError(
                "settings.autocast_exclude", f"expected names of operators, got {self.autocast_exclude!r}"
            )

    @classmethod
    def of(cls, given: Settings | Mapping[str, object] | None) -> Settings:
        """Return settings from settings, from a mapping of field names, or the defaults for None.

        Raises:
            SettingsError: a name is not a field (with the nearest one), or a value is impossible.
        """
        return cls() if given is None else made_of(cls, given, "settings")

    def document(self) -> dict[str, object]:
        """Return the part of the key document that these settings are."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _LEFT_OUT}
        given |= {"tensorrt": self.tensorrt.document(), "autocast_exclude": sorted(self.autocast_exclude)}
        return {name: value for name, value in given.items() if value or name not in _LATER}

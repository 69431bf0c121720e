"""What a caller can say about a build. Every field enters the key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from trtcache.config.named_fields import dataclass_from
from trtcache.config.tensorrt_settings import TensorRTSettings
from trtcache.config.threads import Threads
from trtcache.errors import SettingsError

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


IN_THE_GRAPH = frozenset({"torch_executed_modules", "torch_executed_ops", "min_block_size"})
"""Fields that are no part of a key by themselves: they decide on the parts, and a key has its part's graph."""

AFTER_THE_KEY = frozenset({"require_full_compilation", "on_build_failure"})
"""Fields that say what becomes of a program that has no engine, or not one for all of it."""

AT_RUN_TIME = frozenset({"threads", "build_processes"})
"""Fields that say how engines run or are built, not what they are: code is built for any number of threads."""

AUTOCASTS = ("fp16", "bf16")

ON_BUILD_FAILURE = ("raise", "torch")

_LEFT_OUT = IN_THE_GRAPH | AFTER_THE_KEY | AT_RUN_TIME

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
        torch_executed_ops: operators that stay in torch, as the model calls them or as the lowered program does
            (``aten.softmax.int``, or all overloads: ``aten.softmax``, ``mylib::scale``).
        min_block_size: how many operators an engine has at least, beside those that only look at memory in another way
            (views); what would be a smaller one stays in torch.
        require_full_compilation: whether a program that is not one engine is an error, which names what would stay in
            torch.
        on_build_failure: ``raise``, or ``torch``: a part whose engine cannot be built stays in torch, with a warning.
        build_processes: how many parts of a program are built at once, each in a process with its share of the cores;
            by default as many as there are cores.
        autocast: ``fp16`` or ``bf16``: the precision in which matrix products and convolutions of a float32 program
            are computed, and what lies between; norms, softmax and sums stay in float32, and results keep their dtypes.
        autocast_exclude: operators that ``autocast`` leaves as they are, by name (``aten.convolution``).
        tensorrt: settings of the ``tensorrt`` and ``tensorrt_rtx`` backends, ``TensorRTSettings`` or a mapping of its
            fields (``{"optimization_level": 5}``).
        threads: how many threads work on a call, and how many calls, or parts of one, run side by side: ``Threads`` or
            a mapping of its fields (``{"intra": 1}``). Not in the key. ``trtcache.threads`` is over it, torch's own
            number under it.
    """

    inductor: Mapping[str, Option] = field(default_factory=dict)
    operator_versions: Mapping[str, str] = field(default_factory=dict)
    torch_executed_modules: Collection[str] = ()
    torch_executed_ops: Collection[str] = ()
    min_block_size: int = 1
    require_full_compilation: bool = False
    on_build_failure: str = "raise"
    build_processes: int | None = None
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
        self._check_parts()
        object.__setattr__(self, "tensorrt", TensorRTSettings.of(self.tensorrt))
        object.__setattr__(self, "threads", Threads.of(self.threads))

    def _check_names(self) -> None:
        if not isinstance(self.operator_versions, Mapping):
            raise SettingsError("settings.operator_versions", f"expected a mapping, got {self.operator_versions!r}")
        for name, version in self.operator_versions.items():
            if not isinstance(version, str):
                raise SettingsError(f"settings.operator_versions[{name!r}]", f"{version!r} is no text")
        for field_name, what in (("torch_executed_modules", "modules"), ("torch_executed_ops", "operators")):
            names = getattr(self, field_name)
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise SettingsError(f"settings.{field_name}", f"expected names of {what}, got {names!r}")
        if self.autocast not in (None, *AUTOCASTS):
            raise SettingsError("settings.autocast", f"{self.autocast!r} is none of {', '.join(AUTOCASTS)}")
        if isinstance(self.autocast_exclude, str) or not all(isinstance(one, str) for one in self.autocast_exclude):
            raise SettingsError(
                "settings.autocast_exclude", f"expected names of operators, got {self.autocast_exclude!r}"
            )

    def _check_parts(self) -> None:
        size = self.min_block_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SettingsError("settings.min_block_size", f"{size!r} is no number of operators from 1")
        count = self.build_processes
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise SettingsError("settings.build_processes", f"{count!r} is no number of processes from 1")
        if not isinstance(self.require_full_compilation, bool):
            raise SettingsError("settings.require_full_compilation", f"{self.require_full_compilation!r} is no boolean")
        if self.on_build_failure not in ON_BUILD_FAILURE:
            known = " or ".join(map(repr, ON_BUILD_FAILURE))
            raise SettingsError("settings.on_build_failure", f"expected {known}, got {self.on_build_failure!r}")

    @classmethod
    def of(cls, given: Settings | Mapping[str, object] | None) -> Settings:
        """Return settings from settings, from a mapping of field names, or the defaults for None.

        Raises:
            SettingsError: a name is not a field (with the nearest one), or a value is impossible.
        """
        return cls() if given is None else dataclass_from(cls, given, "settings")

    @property
    def divides(self) -> bool:
        """Whether these settings may divide a program that would be one engine without them."""
        return bool(self.torch_executed_modules or self.torch_executed_ops) or self.min_block_size != 1

    def document(self) -> dict[str, object]:
        """Return the part of the key document that these settings are."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _LEFT_OUT}
        given |= {"tensorrt": self.tensorrt.document(), "autocast_exclude": sorted(self.autocast_exclude)}
        return {name: value for name, value in given.items() if value or name not in _LATER}

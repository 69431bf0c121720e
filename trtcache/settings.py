"""Build settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from trtcache.config.environment import parse_on_miss
from trtcache.config.tensorrt_settings import TensorRTSettings
from trtcache.config.threads import Threads
from trtcache.config.units import dataclass_from
from trtcache.errors import SettingsError

Option: TypeAlias = bool | int | float | str

PINNED_INDUCTOR_OPTIONS: Mapping[str, Option] = {
    # Without this an LSTM was silently wrong after a refit: a small bias had been inlined as a constant.
    "always_keep_tensor_constants": True,
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    # Folds constants at load under names that no weight map knows.
    "aot_inductor.use_runtime_constant_folding": False,
    # Drops all slots.
    "freezing": False,
    # Computes with the values of single-element weights, which do not exist while a package is built
    # (torch/_inductor/fx_passes/joint_graph.py, constant_fold_uniform_value): x * t.exp() was off by any amount.
    "joint_graph_constant_folding": False,
    # The process that runs a package chooses the number of threads, not the one that builds it.
    "cpp.dynamic_threads": True,
}
"""Inductor options that refit, sharing and the key rely on; ``Settings.inductor`` cannot set them."""


IN_THE_GRAPH = frozenset({"torch_executed_modules", "torch_executed_ops", "min_block_size"})
"""Settings that affect the partitioning only: each key has the graph of its partition."""

AFTER_THE_KEY = frozenset({"require_full_compilation", "on_build_failure"})
"""Settings for programs that are not, or not completely, compiled to an engine."""

AT_RUN_TIME = frozenset({"threads", "build_processes", "on_miss", "detach"})
"""Settings for running or building engines that do not change them: code supports any number of threads."""

AUTOCASTS = ("fp16", "bf16")

ON_BUILD_FAILURE = ("raise", "torch")

_LEFT_OUT = IN_THE_GRAPH | AFTER_THE_KEY | AT_RUN_TIME

_LATER = frozenset({"autocast", "autocast_exclude", "tensorrt"})
"""Settings added later: omitted from the key at their defaults, so that older keys stay valid."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Build settings.

    Attributes:
        inductor: options of ``torch._inductor.config`` for the ``aot_inductor`` backend, by dotted name
            (``{"max_autotune": True}``).
        operator_versions: versions of custom operators, by name (``{"mylib::scale": "1.2"}``) or by namespace
            (``{"mylib": "1.2"}``). The implementation of a custom operator is not part of a program, so a program with
            one is cached only if its version is set here, or is that of an installed distribution. Change it when the
            operator changes.
        torch_executed_modules: modules whose operators stay in torch, by path (``encoder.layer.0``) or by class
            (``torch.nn.modules.activation.GELU``). The key contains the resulting operators, so renaming modules keeps
            it.
        torch_executed_ops: operators that stay in torch, as called in the model or in the lowered program
            (``aten.softmax.int``, or all overloads: ``aten.softmax``, ``mylib::scale``).
        min_block_size: minimum number of operators of an engine, not counting views; smaller partitions stay in torch.
        require_full_compilation: whether a program that is not a single engine is an error, which lists the operators
            that would stay in torch.
        on_build_failure: ``raise``, or ``torch``: a partition whose engine cannot be built stays in torch, with a
            warning.
        build_processes: maximum number of partitions built in parallel, each in a process with its share of the cores;
            by default the number of cores.
        autocast: ``fp16`` or ``bf16``: the precision for matrix products and convolutions of a float32 program and for
            the operators between them; norms, softmax and sums stay in float32, and results keep their dtypes.
        autocast_exclude: operators that ``autocast`` does not change, by name (``aten.convolution``).
        tensorrt: settings of the ``tensorrt`` and ``tensorrt_rtx`` backends, ``TensorRTSettings`` or a mapping of its
            fields (``{"optimization_level": 5}``).
        threads: threads of a call, and concurrent calls or partitions: ``Threads`` or a mapping of its fields
            (``{"intra": 1}``). Not in the key. ``trtcache.threads`` overrides it, and it overrides torch's own number.
        on_miss: ``build``, or ``background``: run in torch while a worker process builds (``docs/background.md``); by
            default ``TRTCACHE_ON_MISS`` decides.
        detach: whether a background build goes on if the process ends.
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
    on_miss: str | None = None
    detach: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.inductor, Mapping):
            raise SettingsError("settings.inductor", f"expected a mapping of option names, got {self.inductor!r}")
        for name, value in self.inductor.items():
            if name in PINNED_INDUCTOR_OPTIONS:
                raise SettingsError(f"settings.inductor[{name!r}]", "fixed by trtcache: refit relies on its value")
            if not isinstance(value, (bool, int, float, str)):
                raise SettingsError(f"settings.inductor[{name!r}]", f"{value!r} is not a boolean, number or string")
        self._check_names()
        self._check_parts()
        object.__setattr__(self, "tensorrt", TensorRTSettings.of(self.tensorrt))
        object.__setattr__(self, "threads", Threads.of(self.threads))

    def _check_names(self) -> None:
        if not isinstance(self.operator_versions, Mapping):
            raise SettingsError("settings.operator_versions", f"expected a mapping, got {self.operator_versions!r}")
        for name, version in self.operator_versions.items():
            if not isinstance(version, str):
                raise SettingsError(f"settings.operator_versions[{name!r}]", f"{version!r} is not a string")
        for field_name, what in (("torch_executed_modules", "modules"), ("torch_executed_ops", "operators")):
            names = getattr(self, field_name)
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise SettingsError(f"settings.{field_name}", f"expected names of {what}, got {names!r}")
        if self.autocast not in (None, *AUTOCASTS):
            raise SettingsError("settings.autocast", f"{self.autocast!r} is not one of {', '.join(AUTOCASTS)}")
        if isinstance(self.autocast_exclude, str) or not all(isinstance(name, str) for name in self.autocast_exclude):
            raise SettingsError(
                "settings.autocast_exclude", f"expected names of operators, got {self.autocast_exclude!r}"
            )

    def _check_parts(self) -> None:
        size = self.min_block_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SettingsError("settings.min_block_size", f"{size!r} is not a positive integer")
        count = self.build_processes
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise SettingsError("settings.build_processes", f"{count!r} is not a positive integer")
        for name in ("require_full_compilation", "detach"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(f"settings.{name}", f"{getattr(self, name)!r} is not a boolean")
        if self.on_miss is not None:
            parse_on_miss(self.on_miss, "settings.on_miss")
        if self.on_build_failure not in ON_BUILD_FAILURE:
            known = " or ".join(map(repr, ON_BUILD_FAILURE))
            raise SettingsError("settings.on_build_failure", f"expected {known}, got {self.on_build_failure!r}")

    @classmethod
    def of(cls, given: Settings | Mapping[str, object] | None) -> Settings:
        """Return settings from settings, from a mapping of field names, or the defaults for None.

        Raises:
            SettingsError: a name is not a field (with the nearest one), or a value is invalid.
        """
        return cls() if given is None else dataclass_from(cls, given, "settings")

    @property
    def divides(self) -> bool:
        """Whether these settings may partition a program that would otherwise be a single engine."""
        return bool(self.torch_executed_modules or self.torch_executed_ops) or self.min_block_size != 1

    def document(self) -> dict[str, object]:
        """Return the part of the key document for these settings."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _LEFT_OUT}
        values |= {"tensorrt": self.tensorrt.document(), "autocast_exclude": sorted(self.autocast_exclude)}
        return {name: value for name, value in values.items() if value or name not in _LATER}

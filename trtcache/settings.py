"""Build settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeVar, cast

from trtcache.config import backend_settings
from trtcache.config.backend_settings import BackendSettings, InductorSettings, TensorRTSettings, label
from trtcache.config.environment import ON_MISS, parse_choice
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.threads import Threads
from trtcache.config.units import field_names, refuse_unknown
from trtcache.digests import canonical
from trtcache.errors import BackendUnavailableError, CanonicalizationError, SettingsError

SettingsT = TypeVar("SettingsT", bound=BackendSettings)

_SECTIONS: Mapping[str, type[BackendSettings]] = {kind.section: kind for kind in (InductorSettings, TensorRTSettings)}
"""Settings of built-in backends, which are fields of ``Settings``."""


ON_GUARD = ("error", "eager", "compile")
"""What a call with sizes does that the program was not exported for."""

IN_THE_GRAPH = frozenset({"torch_executed_modules", "torch_executed_ops", "min_block_size"})
"""Settings that affect the partitioning only: each key has the graph of its partition."""

AFTER_THE_KEY = frozenset({"require_full_compilation", "on_build_failure"})
"""Settings for programs that are not, or not completely, compiled to an engine."""

AT_RUN_TIME = frozenset({"threads", "build_processes", "on_miss", "detach"})
"""Settings for running or building engines that do not change them: code supports any number of threads."""

AUTOCASTS = ("fp16", "bf16")

ON_BUILD_FAILURE = ("raise", "torch")

REFITTABLE, PACKED, FROZEN, AUTO = WEIGHTS = ("refittable", "packed", "frozen", "auto")
"""Weights of an engine: taken at load and at a refit, shared or packed; or in the engine; or as the backend chooses."""

PACKING_VERSION = 2
"""The version of the code that decides which weights are packed; only keys of engines that take packed ones have it."""

_LEFT_OUT = IN_THE_GRAPH | AFTER_THE_KEY | AT_RUN_TIME

_ALWAYS = frozenset({"inductor", "operator_versions"})
"""Settings that are in the key at their defaults too; the others were added later, and older keys stay valid."""


@frozen_dataclass
class Settings:
    """Build settings.

    Attributes:
        inductor: options of ``torch._inductor.config`` for the ``aot_inductor`` backend, ``InductorSettings`` or a
            mapping of them by dotted name (``{"max_autotune": True}``).
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
        backends: settings of other backends by name, each the backend's own dataclass or a mapping of its fields. In
            a mapping of settings they are fields like the others (``{"onnxruntime": {"optimization": "all"}}``).
        on_miss: ``build``, or ``background``: run in torch while a worker process builds (``docs/background.md``); by
            default ``TRTCACHE_ON_MISS`` decides.
        detach: whether a background build goes on if the process ends.
        weights: ``refittable``: engines share the model's weights; ``packed``: they take copies of the weights of
            convolutions and linear layers in the layout of oneDNN, made at load and at a refit; ``frozen``: they are
            compiled for these weights alone, which are part of the key, and refuse a refit; or ``auto``: as ``packed``
            on a CPU if the backend takes that, else as ``refittable`` (``docs/performance.md``).
    """

    inductor: InductorSettings = field(default_factory=InductorSettings)
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
    backends: Mapping[str, BackendSettings] = field(default_factory=dict)
    on_miss: str | None = None
    detach: bool = False
    weights: str = REFITTABLE

    def __post_init__(self) -> None:
        self._check_names()
        self._check_parts()
        for name, kind in _SECTIONS.items():
            object.__setattr__(self, name, kind.of(getattr(self, name)))
        if not isinstance(self.backends, Mapping):
            raise SettingsError("settings.backends", f"expected a mapping of names of backends, got {self.backends!r}")
        others = {name: _section_class(name).of(value) for name, value in self.backends.items()}
        for section in others.values():
            _require_plain(section)
        object.__setattr__(self, "backends", {name: section for name, section in others.items() if section.explicit})
        object.__setattr__(self, "threads", Threads.of(self.threads))

    def _check_names(self) -> None:
        if not isinstance(self.operator_versions, Mapping):
            raise SettingsError("settings.operator_versions", f"expected a mapping, got {self.operator_versions!r}")
        for name, version in self.operator_versions.items():
            if not isinstance(version, str):
                raise SettingsError(f"settings.operator_versions[{name!r}]", f"{version!r} is not a string")
        for field_name, what in (
            ("torch_executed_modules", "modules"),
            ("torch_executed_ops", "operators"),
            ("autocast_exclude", "operators"),
        ):
            given = getattr(self, field_name)
            names = tuple(given) if isinstance(given, Iterable) else (None,)  # an iterator can be read once only
            if isinstance(given, str) or not all(isinstance(name, str) for name in names):
                raise SettingsError(f"settings.{field_name}", f"expected names of {what}, got {given!r}")
            if not isinstance(given, Collection):
                object.__setattr__(self, field_name, names)
        if self.autocast not in (None, *AUTOCASTS):
            raise SettingsError("settings.autocast", f"{self.autocast!r} is not one of {', '.join(AUTOCASTS)}")

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
            parse_choice(self.on_miss, ON_MISS, "settings.on_miss")
        for name, words in (("on_build_failure", ON_BUILD_FAILURE), ("weights", WEIGHTS)):
            if getattr(self, name) not in words:
                known = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
                raise SettingsError(f"settings.{name}", f"expected {known}, got {getattr(self, name)!r}")

    @classmethod
    def of(cls, given: Settings | Mapping[str, object] | None) -> Settings:
        """Return settings from settings, from a mapping of field names, or the defaults for None.

        In a mapping, the settings of a backend are a field with the backend's name.

        Raises:
            SettingsError: a name is not a field or a backend (with the nearest one), or a value is invalid.
        """
        if given is None or isinstance(given, cls):
            return given or cls()
        if not isinstance(given, Mapping):
            raise SettingsError("settings", f"expected Settings or a mapping of its fields, got {given!r}")
        refuse_unknown(given, setting_names(given), "settings")
        own = {name: value for name, value in given.items() if name in field_names(cls)}
        others = {name: value for name, value in given.items() if name not in own}
        if others:
            own["backends"] = {**cast("Mapping[str, object]", own.get("backends", {})), **others}
        return cls(**own)  # type: ignore[arg-type]  # values are checked where they are used

    def section(self, kind: type[SettingsT]) -> SettingsT:
        """Return the settings of a backend, by their class."""
        found = getattr(self, kind.section) if kind.section in _SECTIONS else self.backends.get(kind.section)
        return cast("SettingsT", found or kind())

    def with_section(self, section: BackendSettings) -> Settings:
        """Return these settings with other settings of a backend."""
        name = section.section
        changed: dict[str, Any] = {"backends": {**self.backends, name: section}}
        return replace(self, **({name: section} if name in _SECTIONS else changed))

    @property
    def sections(self) -> dict[str, BackendSettings]:
        """The settings of backends that differ from their defaults, by name."""
        built_in = {name: getattr(self, name) for name in _SECTIONS}
        return {name: section for name, section in {**built_in, **self.backends}.items() if section.explicit}

    @property
    def explicit(self) -> dict[str, object]:
        """The settings of a build that differ from their defaults, as JSON values; ``of`` returns equivalent ones.

        ``threads``, ``on_miss`` and ``detach`` are left out: they do not change a build.
        """
        unneeded = {"threads", "on_miss", "detach", "backends", *self.sections}
        names = sorted(set(field_names(Settings)) - unneeded)
        default = Settings()
        changed = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        # Names are in no order: sorted, equal settings give equal JSON.
        changed = {name: sorted(value) if _is_name_collection(value) else value for name, value in changed.items()}
        changed |= {name: section.explicit for name, section in self.sections.items()}
        return {name: _as_json(value) for name, value in changed.items()}

    @property
    def may_partition(self) -> bool:
        """Whether these settings may partition a program that would otherwise be a single engine."""
        return bool(self.torch_executed_modules or self.torch_executed_ops) or self.min_block_size != 1

    def document(self) -> dict[str, object]:
        """Return the part of the key document for these settings."""
        left_out = {*_LEFT_OUT, *_SECTIONS, "backends"}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}
        if self.weights == REFITTABLE:
            del values["weights"]
        if self.weights in (PACKED, AUTO):
            values["packing"] = PACKING_VERSION
        values |= {"inductor": {}, "autocast_exclude": sorted(self.autocast_exclude)}
        values |= {name: section.document() for name, section in self.sections.items()}
        return {name: value for name, value in values.items() if value or name in _ALWAYS}


def _is_name_collection(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, Mapping))


def _as_json(value: Any) -> Any:
    """Return a value as JSON; the order of a backend's own list may matter to it."""
    if isinstance(value, Mapping):
        return {name: _as_json(one) for name, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [_as_json(one) for one in value] if isinstance(value, (list, tuple)) else value


def setting_names(given: Collection[str]) -> list[str]:
    """Return the names of settings; with those of backends if ``given`` has one that is not a field."""
    known = [name for name in field_names(Settings) if name != "backends"]
    if set(given) <= {*known, "backends"}:
        return [*known, "backends"]
    return [*known, *(name for name in backend_settings.backend_table() if name not in backend_settings.BUILT_IN)]


def _require_plain(section: BackendSettings) -> None:
    """Check that settings of a backend can be part of a key.

    Raises:
        SettingsError: a value cannot; it names the field.
    """
    for name, value in section.explicit.items():
        try:
            canonical(value)
        except CanonicalizationError as error:
            raise SettingsError(label(type(section), name), f"{value!r} cannot be part of a key") from error


def _section_class(name: str) -> type[BackendSettings]:
    """Return the class of a backend's settings.

    Raises:
        SettingsError: the backend has no settings of its own, or cannot be imported.
    """
    if name in field_names(Settings):
        raise SettingsError(f"settings.backends[{name!r}]", f"it is a field of its own: settings.{name}")
    try:
        kind = getattr(backend_settings.load_backend_class(name), "settings_class", None)
    except BackendUnavailableError as error:
        raise SettingsError(f"settings.{name}", str(error)) from error
    if not (isinstance(kind, type) and issubclass(kind, BackendSettings)) or getattr(kind, "section", "") != name:
        raise SettingsError(f"settings.{name}", f"backend {name!r} has no settings of this name")
    return kind

"""Backends by name, and the build settings of each."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from trtcache.config.environment import installed_version
from trtcache.config.units import dataclass_from, parse_size
from trtcache.errors import BackendUnavailableError, SettingsError, TrtcacheError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


BUILT_IN: Mapping[str, str] = {
    "aot_inductor": "trtcache.backends.aot_inductor.backend:AotInductor",
    "tensorrt": "trtcache.backends.tensorrt.backend:TensorRT",
    "tensorrt_rtx": "trtcache.backends.tensorrt.backend:TensorRTRtx",
}


@cache
def backend_table() -> Mapping[str, str]:
    """Return every backend's ``module:attribute`` by name."""
    from importlib.metadata import entry_points  # 20 ms, which a built-in backend does not need

    return _merge(BUILT_IN, entry_points(group="trtcache.backends"))


def _merge(ours: Mapping[str, str], theirs: Iterable[EntryPoint]) -> dict[str, str]:
    table = dict(ours)
    owners = dict.fromkeys(ours, "trtcache")
    for point in theirs:
        owner = point.dist.name if point.dist else point.value
        if point.name in table:
            raise BackendUnavailableError(point.name, f"offered by both {owners[point.name]} and {owner}; remove one")
        table[point.name], owners[point.name] = point.value, owner
    return table


def package_of(name: str) -> tuple[str, str]:
    """Return the distribution that offers a backend, and its version; empty strings if that is unknown."""
    from importlib.metadata import entry_points

    if name in BUILT_IN:
        return "trtcache", installed_version()
    for point in entry_points(group="trtcache.backends", name=name):
        if point.dist is not None:
            return point.dist.name, point.dist.version
    return "", ""


def load_backend_class(name: str) -> Any:
    """Import and return the class of a backend, which is not checked.

    Raises:
        SettingsError: the name is not a string.
        BackendUnavailableError: the name is unknown, or the class cannot be imported.
    """
    if not isinstance(name, str):
        raise SettingsError("backend", f"expected a string such as 'aot_inductor', got {name!r}")
    table = BUILT_IN if name in BUILT_IN else backend_table()  # reading entry points takes milliseconds
    if name not in table:
        raise BackendUnavailableError(name, did_you_mean(name, ["auto", *table]))
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise BackendUnavailableError(name, f"cannot be imported: {error}") from error
    except Exception as error:  # another distribution's code
        raise BackendUnavailableError(name, f"it fails with {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Settings of a backend. Derive a frozen dataclass whose fields have defaults, and set ``section``.

    Values are checked against the annotations of the fields, as far as these are numbers, strings, booleans, tuples,
    ``None``, ``Literal`` or a union of them; ``__post_init__`` may check more, and raise ValueError or SettingsError.

    Attributes:
        section: the name of these settings in ``Settings``: the name of the backend.
    """

    section: ClassVar[str]

    @classmethod
    def of(cls, given: object) -> Self:
        """Return ``given`` if it is an instance, or make one from a mapping of field names.

        Raises:
            SettingsError: a name is not a field (the message suggests the nearest), or a value is invalid.
        """
        where = f"settings.{cls.section}"
        try:
            if isinstance(given, Mapping):
                given = cls._check_values(given)
            return dataclass_from(cls, given, where)
        except TrtcacheError:
            raise
        except Exception as error:  # another distribution's code
            raise SettingsError(where, str(error)) from error

    @classmethod
    def _check_values(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return the values, with lists as tuples; raise SettingsError for one of another type than its field."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        hints = get_type_hints(cls)
        for name in values.keys() & hints.keys():
            if not _fits(values[name], hints[name]):
                hint = hints[name]
                expected = hint.__name__ if type(hint) is type else str(hint).replace("typing.", "")
                raise SettingsError(label(cls, name), f"expected {expected}, got {values[name]!r}")
        return values

    @property
    def explicit(self) -> dict[str, Any]:
        """The fields that differ from their defaults: in type or value, since ``True`` is equal to 1."""
        default, changed = type(self)(), {}
        for one in fields(self):
            value, usual = getattr(self, one.name), getattr(default, one.name)
            if type(value) is not type(usual) or value != usual:
                changed[one.name] = value
        return changed

    def document(self) -> dict[str, object]:
        """Return the part of the key document for these settings: those that differ from their defaults.

        The defaults are in the key through ``Backend.versions``.
        """
        return self.explicit

    @classmethod
    def describe(cls) -> dict[str, object]:
        """Return each field with its default, for ``trtcache backends``."""
        default = cls()
        return {field.name: getattr(default, field.name) for field in fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return the default of each field that has one other than None or an empty collection."""
        default = cls()
        values = {field.name: getattr(default, field.name) for field in fields(cls)}
        return {name: value for name, value in values.items() if value not in (None, (), {})}


def label(kind: type[BackendSettings], name: str) -> str:
    """Return the name of a field in messages."""
    return f"settings.{kind.section}[{name!r}]"


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has an annotated type; annotations other than those documented are not checked."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, alternative) for alternative in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    kind = origin or hint
    if kind is float:
        return type(value) in (int, float)
    if kind in (bool, int, str, tuple, type(None)):
        return type(value) is kind
    return True


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
"""Inductor options that refit, sharing and the key rely on; ``InductorSettings`` cannot set them."""


@dataclass(frozen=True, slots=True)
class InductorSettings(BackendSettings):
    """Options of ``torch._inductor.config`` by dotted name; in a mapping, these names are the settings."""

    section: ClassVar[str] = "inductor"

    options: Mapping[str, Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            if name in PINNED_INDUCTOR_OPTIONS:
                hint = "; settings={'weights': 'frozen'} sets it" if name == "freezing" else ""
                raise SettingsError(
                    f"settings.inductor[{name!r}]", f"fixed by trtcache: refit relies on its value{hint}"
                )
            if not isinstance(value, (bool, int, float, str)):
                raise SettingsError(f"settings.inductor[{name!r}]", f"{value!r} is not a boolean, number or string")

    @classmethod
    def of(cls, given: object) -> Self:
        """Return settings from settings or from a mapping of option names."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise SettingsError("settings.inductor", f"expected a mapping of option names, got {given!r}")
        return cls(given)

    @property
    def explicit(self) -> dict[str, Any]:
        """The options."""
        return dict(self.options)

    @classmethod
    def describe(cls) -> dict[str, object]:
        """Return a line for all options: their names and defaults depend on torch's version."""
        return {"NAME": "as in torch._inductor.config"}


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

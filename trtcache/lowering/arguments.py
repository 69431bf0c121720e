"""Arguments of a program: examples specified by shapes, and modules whose parameters torch.export treats as inputs.

The classes, flags and numbers of a module argument become part of the program. torch can flatten such a module only
during export; ``in_spec`` has its class, and as context the names of its tensors and a weak reference to it.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TRACED_FROM = 2  # torch assumes that dynamic sizes are at least this
CONTAINERS = frozenset({tuple, list, dict, OrderedDict, defaultdict, deque, namedtuple})
"""Containers of Python, as ``TreeSpec.type`` has them."""


@dataclass(frozen=True)
class Input:
    """A tensor argument with a range of shapes.

    ``Input((4, 128))`` is a tensor of that shape. ``Input(min_shape=(1, 8), opt_shape=(4, 128), max_shape=(16, 512))``
    is dynamic in both sizes; a plan is fastest at ``opt_shape``. The example tensor is zeros.

    Attributes:
        shape: the only shape, instead of the others.
        dtype: the tensor's dtype.
        min_shape, max_shape: the minimum and maximum sizes.
        opt_shape: the optimal sizes; by default the maximum.
        device: the tensor's device.
    """

    shape: Sequence[int] | None = None
    dtype: torch.dtype = torch.float32
    min_shape: Sequence[int] | None = None
    opt_shape: Sequence[int] | None = None
    max_shape: Sequence[int] | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        ranged = self.min_shape is not None and self.max_shape is not None
        if (self.shape is not None) == ranged or (self.shape is not None and self.opt_shape is not None):
            raise SettingsError("Input", "give either shape, or min_shape and max_shape (and opt_shape)")
        for shape in (self.shape, self.min_shape, self.opt_shape, self.max_shape):
            if shape is not None and not (
                isinstance(shape, Sequence) and all(isinstance(size, Integral) for size in shape)
            ):
                raise SettingsError("Input", f"a shape is a sequence of integers such as (4, 128), not {shape!r}")
        least, usual, most = self.bounds()
        ordered = len(least) == len(usual) == len(most) and all(
            0 <= low <= mid <= high for low, mid, high in zip(least, usual, most, strict=True)
        )
        if not ordered:
            raise SettingsError("Input", f"sizes must rise from {least} over {usual} to {most}")

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the minimum, optimal and maximum sizes."""
        if self.shape is not None:
            return tuple(self.shape), tuple(self.shape), tuple(self.shape)
        most = tuple(self.max_shape or ())
        return tuple(self.min_shape or ()), tuple(self.opt_shape or most), most

    def example(self) -> torch.Tensor:
        """Return a tensor of the optimal shape."""
        return torch.zeros(self.bounds()[1], dtype=self.dtype, device=self.device)

    def dimensions(self) -> dict[int, Any]:
        """Return ``torch.export``'s dimension for each dynamic size."""
        from torch.export import Dim

        least, _, most = self.bounds()
        return {
            place: Dim.DYNAMIC(min=low, max=high)
            for place, (low, high) in enumerate(zip(least, most, strict=True))
            if low != high
        }


@contextmanager
def whole_ranges() -> Iterator[None]:
    """Let ``torch.export`` keep ranges that start at 1, and example sizes of 1; otherwise it specialises on 1.

    torch.onnx does the same for its own exports.
    """
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]  # torch's own
        yield


def assume_sizes_of_two(program: ExportedProgram) -> None:
    """Let the dynamic sizes of a program be at least 2, as in its export.

    ``torch.export.load`` gives them the range of the program, from 0 on. Decompositions would then compare sizes with
    1, and torch would take the example's answers for conditions of the program.
    """
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    sizes: list[Any] = [size for one in values if isinstance(one, torch.Tensor) for size in one.shape]
    for size in sizes:
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:  # a number, or a term of another size
            continue
        symbol, environment = size.node.expr, size.node.shape_env
        if (
            environment.backed_var_to_val.get(symbol, 0) >= TRACED_FROM
            and environment.var_to_range[symbol].lower < TRACED_FROM
        ):
            from torch.utils._sympy.numbers import int_oo
            from torch.utils._sympy.value_ranges import ValueRanges

            environment._update_var_to_range(symbol, ValueRanges(TRACED_FROM, int_oo))


def replace_inputs(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return example arguments and dynamic shapes, with each ``Input`` replaced by its tensor and ranges.

    Raises:
        SettingsError: both ``Input`` and ``dynamic_shapes`` are given.
    """
    given = pytree.tree_leaves((args, kwargs))
    if not any(isinstance(one, Input) for one in given):
        return args, dict(kwargs), dynamic_shapes
    if dynamic_shapes is not None:
        raise SettingsError("dynamic_shapes", "an Input specifies its own sizes; give one or the other")
    shapes, named = pytree.tree_map(
        lambda one: one.dimensions() if isinstance(one, Input) else None, (args, dict(kwargs))
    )
    made, named_made = pytree.tree_map_only(Input, lambda one: one.example(), (args, dict(kwargs)))
    return made, named_made, dict(inspect.signature(model.forward).bind(*shapes, **named).arguments)


def automatic_sizes(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    in_spec: pytree.TreeSpec,
) -> dict[tuple[int, int | None], str]:
    """Return the sizes that ``Dim.AUTO`` leaves to torch: (leaf, dimension or None for an int) -> torch's name for it.

    It is empty if torch would not accept the arguments with these ``dynamic_shapes``.
    """
    from torch.export.dynamic_shapes import _tree_map_with_path

    if hasattr(dynamic_shapes, "dynamic_shapes"):  # torch.export.ShapesCollection
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, dict(kwargs))
    if not dynamic_shapes:
        return {}
    found: dict[tuple[int, int | None], str] = {}
    leaf = 0
    for name, value, shapes in _arguments(model, args, kwargs, dynamic_shapes, children(in_spec)[1].context):
        hints: list[Any] = []
        _tree_map_with_path(lambda _, __, *one, hints=hints: hints.extend(one or [None]), [value], *shapes)
        paths = [path for path, _ in pytree.tree_flatten_with_path(value)[0]]
        if len(paths) != len(hints):  # a module, which torch flattens during export only
            return {}
        for path, hint in zip(paths, hints, strict=True):
            source = f"L[{name!r}]{pytree.keystr(path)}"
            if _is_auto(hint):
                found[leaf, None] = source
            sizes = (
                enumerate(hint) if isinstance(hint, (tuple, list)) else hint.items() if isinstance(hint, dict) else ()
            )
            found |= {(leaf, dim): f"{source}.size()[{dim}]" for dim, size in sizes if _is_auto(size)}
            leaf += 1
    return found


def _is_auto(hint: object) -> bool:
    return getattr(hint, "type", None) is torch.export.Dim.AUTO.type


def _arguments(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any, names: Sequence[str]
) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield each argument in the order of leaves: name, value, and a list of its dynamic shapes, which may be none."""
    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs).arguments
    given = dynamic_shapes if isinstance(dynamic_shapes, dict) else dict(zip(bound, dynamic_shapes, strict=False))
    for name, value in signature.bind_partial(*args).arguments.items():
        yield name, value, [] if given.get(name) is None else [[given[name]]]
    others = next((name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD), "")
    given = {**(given.get(others) or {}), **given}
    for name in names:
        yield name, kwargs[name], [] if given.get(name) is None else [[given[name]]]


def reasons_for_fixed_sizes(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Return why torch fixed sizes that were to vary: torch's name for the size -> reason."""
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    modes = (getattr(value, "fake_mode", None) for value in values)
    environment: Any = next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)
    reasons: dict[str, str] = {}
    for symbol, location in getattr(environment, "replacements_slocs", {}).items():
        frame: Any = getattr(location, "framework_loc", None)
        if not environment.replace(symbol).is_number or not hasattr(frame, "lineno"):
            continue
        file = frame.filename.partition(f"{Path(torch.__file__).parent.parent}/")
        where = f"at {file[2] or file[0]}:{frame.lineno} in {frame.name}"
        for source in environment.var_to_sources.get(symbol, ()):
            reasons[source.name if isinstance(source.name, str) else source.name()] = where
    return reasons


_TENSORS = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})


def module_class(spec: pytree.TreeSpec) -> type[torch.nn.Module] | None:
    """Return the class of a module argument's spec; None for other specs."""
    return spec.type if isinstance(spec.type, type) and issubclass(spec.type, torch.nn.Module) else None


def without_modules(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return a spec with modules replaced by dicts of their tensors: torch flattens modules only during export."""
    if spec.is_leaf():
        return spec
    parts = [without_modules(child) for child in children(spec)]
    if module_class(spec) is not None:
        return pytree.TreeSpec(dict, list(spec.context[0]), parts)
    return pytree.TreeSpec(spec.type, spec.context, parts)


def leaf_paths(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Return the path of each leaf as ``torch.utils._pytree`` writes it.

    A class whose objects cannot hold anything but tensors, as the caches of transformers, counts as a list.
    """
    spec = without_modules(spec)

    def paths_of(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
        leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))
        return [path for path, _ in leaves]

    with suppress(Exception):  # it runs code of the class
        if len(paths := paths_of(spec)) == spec.num_leaves:
            return paths
    return paths_of(_without_classes(spec))


def has_classes(spec: pytree.TreeSpec) -> bool:
    """Return whether a structure has a node of a registered class, which is not one of Python's containers."""
    return not spec.is_leaf() and (spec.type not in CONTAINERS or any(map(has_classes, children(spec))))


def _without_classes(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    if spec.is_leaf():
        return spec
    kind, context = (spec.type, spec.context) if spec.type in CONTAINERS else (list, None)
    return pytree.TreeSpec(kind, context, [_without_classes(child) for child in children(spec)])


def configuration(module: torch.nn.Module) -> dict[str, Any]:
    """Return what a module's results depend on besides parameters and buffers: classes, flags and numbers.

    An object without a plain value is compared by identity.
    """
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in _TENSORS}
        found[path] = (type(part), {name: _plain(value) for name, value in own.items()})
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value), repr(value)
    if isinstance(value, (list, tuple)):
        return type(value), [_plain(part) for part in value]
    if isinstance(value, dict):
        return type(value), [(_plain(key), _plain(part)) for key, part in value.items()]
    return _Same(value)


class _Same:
    """An object that equals only itself, kept alive so that no other gets its address."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def configurations(spec: pytree.TreeSpec) -> list[dict[str, Any] | None]:
    """Return the configurations of module arguments, in order; None for one that no longer exists."""
    if spec.is_leaf():
        return []
    if module_class(spec) is not None:
        module = spec.context[1]()  # after torch.export.load this is not a module of that class
        return [configuration(module) if type(module) is spec.type else None]
    return [found for child in children(spec) for found in configurations(child)]


def children(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    """Return the children of a spec, which older versions of torch have as an attribute."""
    parts = spec.children
    return list(parts() if callable(parts) else parts)

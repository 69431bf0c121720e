"""Recipes: how an engine weight is computed from a model's weights.

A recipe is a weight, or an operator applied to recipes and constants. The set of operators is small, each is exactly
defined on every device, and a recipe is stored as JSON: ``{"slot": 0}``, or ``{"op": "mul", "args": [{"slot": 0},
{"op": "rsqrt", "args": [{"slot": 1}]}]}``. So the same weights give the same engine weights, bit for bit, in every
process.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import IncompatibleEngineError
from trtcache.weights.arrays import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import torch

    from trtcache.digests import Json


@frozen_dataclass
class WeightRef:
    """A reference to a model weight: by name while a graph is lowered, by slot index afterwards."""

    weight: str | int


@frozen_dataclass
class Operation:
    """An operator of ``OPERATORS`` and its arguments: recipes, numbers, shapes and dtype names."""

    operator: str
    arguments: tuple[Recipe | Argument, ...]


Recipe: TypeAlias = WeightRef | Operation
Argument: TypeAlias = int | float | str | tuple[int, ...]


OPERATORS = frozenset({"add", "cast", "div", "mul", "neg", "permute", "reshape", "rsqrt", "sqrt", "sub"})
"""Operators of recipes, by torch's names. Removing or changing one requires a new version of the weight map."""

_BY_ELEMENT = OPERATORS - {"permute", "reshape"}
_PIECE_ELEMENTS = 1 << 20


def step(operator: str, *arguments: Recipe | Argument) -> Operation:
    """Build an operation, as in ``step("mul", weight, 2.0)``."""
    return Operation(operator, arguments)


def is_elementwise(recipe: Recipe) -> bool:
    """Return whether a recipe is an operation whose rows depend on the same rows of its operands alone."""
    return isinstance(recipe, Operation) and recipe.operator in _BY_ELEMENT


def _apply(operator: str, arguments: Iterable[Any], into: torch.Tensor | None = None) -> torch.Tensor:
    import torch

    if operator == "cast":
        tensor, dtype = arguments
        cast: torch.Tensor = tensor.to(getattr(torch, dtype)) if into is None else into.copy_(tensor)
        return cast
    result: torch.Tensor = getattr(torch, operator)(*arguments, **({} if into is None else {"out": into}))
    return result


def evaluate(recipe: Recipe, weights: Mapping[str | int, torch.Tensor]) -> torch.Tensor:
    """Evaluate a recipe on the weights' own device; the tensor of a reference is returned as is."""
    return _evaluate(recipe, weights.__getitem__)


def _evaluate(recipe: Recipe, weight_of: Callable[[str | int], torch.Tensor]) -> torch.Tensor:
    """Evaluate a recipe; intermediate results are released as soon as they have been used."""
    if isinstance(recipe, WeightRef):
        return weight_of(recipe.weight)
    values = (_evaluate(one, weight_of) if isinstance(one, (WeightRef, Operation)) else one for one in recipe.arguments)
    return _apply(recipe.operator, values)


Bring: TypeAlias = "Callable[[str | int, torch.Tensor], torch.Tensor]"


def pieces(
    recipe: Recipe, weights: Mapping[str | int, torch.Tensor], shape: tuple[int, ...], bring: Bring
) -> Iterator[tuple[Any, torch.Tensor]]:
    """Evaluate a recipe piecewise: yield indices and values, a few rows of a large result at a time.

    Rows are bit-identical to those of a full evaluation. Recipes that are not elementwise (a reshape) are one piece.

    ``shape`` is that of the result; ``bring`` moves a weight, or rows of it, to the compute device.
    """
    whole: dict[int, torch.Tensor] = {}
    places = _places(shape) if isinstance(recipe, WeightRef) or is_elementwise(recipe) else [...]
    for place in places:
        yield place, _Rows(weights, shape, place, bring, whole).of(recipe)


def evaluate_into(
    result: torch.Tensor, recipe: Recipe, weights: Mapping[str | int, torch.Tensor], bring: Bring
) -> None:
    """Evaluate an elementwise recipe into a tensor, a few rows of a large one at a time; see ``pieces``."""
    assert isinstance(recipe, Operation)  # noqa: S101  # a reference has nothing to compute
    whole: dict[int, torch.Tensor] = {}
    shape = tuple(result.shape)
    for place in _places(shape):
        _Rows(weights, shape, place, bring, whole).of(recipe, result[place])


def _places(shape: tuple[int, ...]) -> list[Any]:
    """Return the indices of the pieces in which a result of this shape is computed."""
    rows = max(1, _PIECE_ELEMENTS * shape[0] // max(1, math.prod(shape))) if shape else 1
    if not (shape and rows < shape[0]):
        return [...]
    return [slice(start, start + rows) for start in range(0, shape[0], rows)]


@frozen_dataclass
class _Rows:
    """Evaluate some rows of recipes; operands that are broadcast over rows are used whole."""

    weights: Mapping[str | int, torch.Tensor]
    shape: tuple[int, ...]
    part: Any  # a slice, or ... for all of them
    bring: Bring
    whole: dict[int, torch.Tensor]

    def of(self, recipe: Recipe, into: torch.Tensor | None = None) -> torch.Tensor:
        if isinstance(recipe, WeightRef):
            return self.bring(recipe.weight, self._rows_of(self.weights[recipe.weight]))
        if recipe.operator in _BY_ELEMENT:
            arguments = (self.of(one) if isinstance(one, (WeightRef, Operation)) else one for one in recipe.arguments)
            return _apply(recipe.operator, arguments, into)
        if id(recipe) not in self.whole:
            self.whole[id(recipe)] = _evaluate(recipe, lambda name: self.bring(name, self.weights[name]))
        return self._rows_of(self.whole[id(recipe)])

    def _rows_of(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.part is ...:
            return tensor
        has_rows = tensor.dim() == len(self.shape) and tensor.shape[0] == self.shape[0]
        return tensor[self.part] if has_rows else tensor


def sources(recipe: Recipe) -> Iterator[str | int]:
    """Yield the weights that a recipe uses, in the order of occurrence, with repetitions."""
    if isinstance(recipe, WeightRef):
        yield recipe.weight
        return
    for argument in recipe.arguments:
        if isinstance(argument, (WeightRef, Operation)):
            yield from sources(argument)


def rename(recipe: Recipe, name: Callable[[str | int], str | int]) -> Recipe:
    """Return the recipe with renamed weights; ``name`` is called in the order of ``sources``."""
    if isinstance(recipe, WeightRef):
        return WeightRef(name(recipe.weight))
    arguments = [rename(one, name) if isinstance(one, (WeightRef, Operation)) else one for one in recipe.arguments]
    return Operation(recipe.operator, tuple(arguments))


def document(recipe: Recipe) -> dict[str, Json]:
    """Encode a recipe as JSON."""
    if isinstance(recipe, WeightRef):
        return {"slot": recipe.weight}
    return {"op": recipe.operator, "args": [_argument_document(one) for one in recipe.arguments]}


def _argument_document(argument: Recipe | Argument) -> Json:
    if isinstance(argument, (WeightRef, Operation)):
        return document(argument)
    if isinstance(argument, float):
        return {"$float": argument.hex()}
    return list(argument) if isinstance(argument, tuple) else argument


def parse(written: Json) -> Recipe:
    """Parse a recipe written by ``document``.

    Raises:
        IncompatibleEngineError: it is malformed, or has an operator or a dtype that this version does not know.
    """
    match written:
        case {"slot": int(slot), **rest} if not rest:
            return WeightRef(slot)
        case {"op": str(operator), "args": list(arguments), **rest} if not rest and operator in OPERATORS:
            return Operation(operator, tuple(map(_parse_argument, arguments)))
    raise IncompatibleEngineError("weight map", f"{written!r} is not a recipe that this version of trtcache supports")


def _parse_argument(written: Json) -> Recipe | Argument:
    match written:
        case {"$float": str(value)}:
            return float.fromhex(value)
        case dict():
            return parse(written)
        case [*sizes] if all(type(size) is int for size in sizes):
            return tuple(size for size in sizes if isinstance(size, int))
        case str() if written in ITEM_BYTES:
            return written
        case int():
            return written
    raise IncompatibleEngineError("weight map", f"{written!r} is not a valid recipe argument")


def text(recipe: Recipe) -> str:
    """Format a recipe: ``mul(slot0, rsqrt(slot1))``."""
    if isinstance(recipe, WeightRef):
        return f"slot{recipe.weight}"
    arguments = (text(one) if isinstance(one, (WeightRef, Operation)) else str(one) for one in recipe.arguments)
    return f"{recipe.operator}({', '.join(arguments)})"

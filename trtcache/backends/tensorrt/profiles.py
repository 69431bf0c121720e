"""Optimization profiles: min, opt and max shape of each dynamic input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.onnx import input_name
from trtcache.errors import BuildError, ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.backends.tensorrt.plan import Network
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The shapes of one input that a plan supports: ``least`` (min), ``usual`` (opt) and ``most`` (max)."""

    name: str
    least: Shape
    usual: Shape
    most: Shape

    def document(self) -> dict[str, Json]:
        """Return the range as stored beside the plan."""
        return {"name": self.name, "min": list(self.least), "opt": list(self.usual), "max": list(self.most)}


def ranges_of(program: LoweredProgram, kind: str) -> tuple[Range, ...]:
    """Return the range of each dynamic input; the example's sizes are the optimum.

    Raises:
        ProfileError: a size has no upper bound.
    """
    found = []
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        if "input" not in node.meta:
            continue
        name, shape = input_name(node.meta["input"]), node.meta["val"].shape
        if any(type(size) is not int for size in shape):
            bounds = [_bounds(size, program, kind, name) for size in shape]
            least, usual, most = (tuple(range_) for range_ in zip(*bounds, strict=True))
            found.append(Range(name, least, usual, most))
    return tuple(found)


def _bounds(size: Any, program: LoweredProgram, kind: str, name: str) -> tuple[int, int, int]:
    """Return min, opt and max of a size; an expression is evaluated at its symbols' bounds."""
    if type(size) is int:
        return size, size, size
    expression = size.node.expr
    least, most = {}, {}
    for symbol in expression.free_symbols:
        limits = program.constraints.get(symbol)
        if limits is None or not limits.upper.is_Integer:
            raise ProfileError(kind, f"a size of input {name} ({expression}) has no upper bound")
        least[symbol], most[symbol] = limits.lower, limits.upper
    ends = sorted((int(expression.subs(least)), int(expression.subs(most))))
    usual = int(size.node.hint) if size.node.hint is not None else ends[1]
    return ends[0], usual, ends[1]


def add_profile(config: Any, network: Network, ranges: Iterable[Range], kind: str) -> None:
    """Add one profile with these ranges to the builder; none without dynamic sizes.

    Raises:
        ProfileError: a size depends on the values of an input.
        BuildError: the builder rejects the profile.
    """
    for number in range(network.definition.num_inputs):
        port = network.definition.get_input(number)
        if port.is_shape_tensor:
            why = f"sizes depend on the values of input {port.name!r}, whose range is unknown"
            raise ProfileError(kind, why, "make it a constant of the model")
    ranges = tuple(ranges)
    if not ranges:
        return
    profile = network.builder.create_optimization_profile()
    for range_ in ranges:
        profile.set_shape(range_.name, range_.least, range_.usual, range_.most)
    if config.add_optimization_profile(profile) < 0:
        shown = ", ".join(f"{range_.name} from {range_.least} to {range_.most}" for range_ in ranges)
        raise BuildError(kind, f"the builder rejects a profile with {shown}")

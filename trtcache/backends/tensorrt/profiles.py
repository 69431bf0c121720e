"""Optimization profiles: the least, the usual and the most size of each input that varies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trtcache.backends.tensorrt.program import input_name
from trtcache.errors import BuildError, ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trtcache.backends.tensorrt.network import Network
    from trtcache.digests import Json
    from trtcache.lowering import LoweredProgram

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The shapes of one input that a plan is built for: from the least to the most, fastest at the usual one."""

    name: str
    least: Shape
    usual: Shape
    most: Shape

    def document(self) -> dict[str, Json]:
        """Return the range as it is stored beside the plan."""
        return {"name": self.name, "min": list(self.least), "opt": list(self.usual), "max": list(self.most)}


def ranges_of(program: LoweredProgram, kind: str) -> tuple[Range, ...]:
    """Return the range of each input whose size varies; the example's sizes are the usual ones.

    Raises:
        ProfileError: a size has no most value.
    """
    found = []
    for node in program.graph_module.graph.find_nodes(op="placeholder"):
        if "input" not in node.meta:
            continue
        name, shape = input_name(node.meta["input"]), node.meta["val"].shape
        if any(type(size) is not int for size in shape):
            bounds = [_bounds(size, program, kind, name) for size in shape]
            least, usual, most = (tuple(one) for one in zip(*bounds, strict=True))
            found.append(Range(name, least, usual, most))
    return tuple(found)


def _bounds(size: Any, program: LoweredProgram, kind: str, name: str) -> tuple[int, int, int]:
    """Return the least, the example's and the most value of a size; an expression takes them at its symbols' bounds."""
    if type(size) is int:
        return size, size, size
    expression = size.node.expr
    least, most = {}, {}
    for symbol in expression.free_symbols:
        limits = program.constraints.get(symbol)
        if limits is None or not limits.upper.is_Integer:
            raise ProfileError(kind, f"a size of input {name} ({expression}) has no most value")
        least[symbol], most[symbol] = limits.lower, limits.upper
    ends = sorted((int(expression.subs(least)), int(expression.subs(most))))
    usual = int(size.node.hint) if size.node.hint is not None else ends[1]
    return ends[0], usual, ends[1]


def add_profile(config: Any, network: Network, ranges: Iterable[Range], kind: str) -> None:
    """Give the builder one profile with these ranges; none where no size varies.

    Raises:
        ProfileError: a size follows from the values of an input.
        BuildError: the builder refuses the profile.
    """
    for number in range(network.definition.num_inputs):
        port = network.definition.get_input(number)
        if port.is_shape_tensor:
            why = f"sizes follow from the values of input {port.name!r}, whose least and most nobody said"
            raise ProfileError(kind, why, "make it a constant of the model")
    ranges = tuple(ranges)
    if not ranges:
        return
    profile = network.builder.create_optimization_profile()
    for one in ranges:
        profile.set_shape(one.name, one.least, one.usual, one.most)
    if config.add_optimization_profile(profile) < 0:
        shown = ", ".join(f"{one.name} from {one.least} to {one.most}" for one in ranges)
        raise BuildError(kind, f"the builder takes no profile with {shown}")

"""The proof that a plan can be refitted: each engine weight reaches the network whole and under its own name.

A name alone proves nothing where the parser has melted weights into others, so the network is asked. What it does not
take as refittable is frozen: the plan has that weight's values, and another value needs another plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.errors import BuildError, FrozenWeightsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.backends.tensorrt.network import Network
    from trtcache.digests import Json
    from trtcache.lowering.interface import Interface
    from trtcache.weights.slots import EngineWeight

_FLOATS = frozenset({"float16", "bfloat16", "float32"})


@dataclass(frozen=True, slots=True)
class Proof:
    """What a network said of a program's weights.

    Attributes:
        refittable: names of the engine weights that it takes by name.
        frozen: the others, and why.
    """

    refittable: tuple[str, ...]
    frozen: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Json]:
        """Return the proof as it is stored beside the plan."""
        return {"refittable": list(self.refittable), "frozen": dict(self.frozen)}


def prove(network: Network, interface: Interface, kind: str) -> Proof:
    """Ask the network about each engine weight, and mark those that it takes.

    Raises:
        BuildError: a slot is in no engine weight, so that its values would not reach the plan.
    """
    weights = interface.weights
    reached = {slot.index for weight in weights for slot in weight.slots}
    if lost := [slot.names[0] for slot in interface.slots if slot.index not in reached]:
        raise BuildError(kind, f"these weights do not reach the network: {', '.join(lost)}")
    refittable, frozen = [], {}
    for weight in weights:
        if weight.dtype in _FLOATS and network.definition.mark_weights_refittable(weight.name):
            refittable.append(weight.name)
        else:
            frozen[weight.name] = _why(weight)
    return Proof(tuple(refittable), frozen)


def require_complete(proof: Proof, interface: Interface, kind: str) -> None:
    """Refuse a plan that is to take other weights and has one of floating point in it that it cannot take.

    The values of weights of other dtypes are in the key, so those may be frozen.

    Raises:
        FrozenWeightsError: it names the weights, each with its reason, and what to do.
    """
    floating = [one.name for one in interface.weights if one.dtype in _FLOATS]
    if reasons := [proof.frozen[name] for name in floating if name in proof.frozen]:
        raise FrozenWeightsError(kind, "; ".join(reasons))


def forget(network: Network, proof: Proof) -> None:
    """Take the marks back, for a builder that builds plans for one set of weights."""
    for name in proof.refittable:
        network.definition.unmark_weights_refittable(name)


def _why(weight: EngineWeight) -> str:
    names = ", ".join(slot.names[0] for slot in weight.slots if slot.names)
    if weight.dtype not in _FLOATS:
        return f"{names}: TensorRT refits weights of floating point only, and this is {weight.dtype}"
    return f"{names}: the network has no refittable weight of this name"

"""Two programs whose keys must differ, or must be one; and the proof, by their real outputs, of which it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from trtcache.digests import CacheKey
from trtcache.frontends.resolve import resolve
from trtcache.frontends.source import CompileOptions
from trtcache.keys.program_digest import exported_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Input = Any
"""A tuple of sizes (random float32 of that shape), or the argument itself."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model and a call of it; what is None comes from the pair."""

    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...] | None = None
    dynamic: Any = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs.

    ``probe`` is for programs that compute the same where both can be called: inputs that only one of them takes, when
    it was exported.
    """

    name: str
    one: Program
    other: Program
    inputs: tuple[Input, ...] = ()
    probe: tuple[Input, ...] | None = None

    @property
    def sides(self) -> tuple[Program, Program]:
        """Both programs, in order."""
        return self.one, self.other


class Of(nn.Module):
    """A function of weights and arguments: the function's first argument, if there are weights, has them by name."""

    def __init__(self, function: Callable[..., Any], weights: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.function = function
        self.names = tuple(weights)
        for name, shape in sorted(weights.items()):
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args) if self.names else self.function(*args)


def pair(
    name: str,
    one: Callable[..., Any] | Program,
    other: Callable[..., Any] | Program,
    *inputs: Input,
    weights: Mapping[str, tuple[int, ...]] | None = None,
    dynamic: Any = None,
    probe: tuple[Input, ...] | None = None,
) -> Pair:
    """Return a pair of functions, or of programs, on the same inputs; weights of one name have one value."""

    def program(given: Callable[..., Any] | Program) -> Program:
        if isinstance(given, Program):
            return given
        return Program(lambda: Of(given, weights or {}), None, dynamic)

    return Pair(name, program(one), program(other), inputs, probe)


def made(program: Program) -> nn.Module:
    """Return a program's model, in eval mode, with weights that its seed decides."""
    torch.manual_seed(1)
    return program.make().eval()


def drawn(inputs: tuple[Input, ...], seed: int = 0) -> tuple[Any, ...]:
    """Return inputs with the random ones drawn."""
    generator = torch.Generator().manual_seed(seed)

    def draw(one: Input) -> Any:
        is_shape = isinstance(one, tuple) and all(type(size) is int for size in one)
        return torch.randn(one, generator=generator) if is_shape else pytree.tree_map_only(torch.Tensor, _copy, one)

    return tuple(map(draw, inputs))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def digests(program: Program, inputs: tuple[Input, ...]) -> tuple[str, str]:
    """Return the key that ``trtcache.compile`` would use, and the program's digest, which its key alias is found by."""
    args = drawn(inputs if program.inputs is None else program.inputs)
    exported = resolve(made(program), args, None, program.dynamic).export(CompileOptions())
    alias = str(exported_digest(exported.program()))
    made_key = exported.request(CompileOptions()).key
    assert isinstance(made_key, CacheKey), made_key
    return made_key.digest, alias


def key(program: Program, inputs: tuple[Input, ...]) -> str:
    """Return the key that ``trtcache.compile`` would use."""
    return digests(program, inputs)[0]


def observed(program: Program, inputs: tuple[Input, ...]) -> Any:
    """Return everything that a caller of the model can see after a call: its output, and its arguments."""
    model, args = made(program), drawn(inputs if program.inputs is None else program.inputs)
    torch.manual_seed(2)
    with torch.no_grad():
        return model(*args), args


def takes(program: Program, inputs: tuple[Input, ...], probe: tuple[Input, ...]) -> bool:
    """Say whether the exported program can be called with other inputs."""
    args = drawn(inputs if program.inputs is None else program.inputs)
    exported = torch.export.export(made(program), args, dynamic_shapes=program.dynamic, strict=False).module()
    try:
        exported(*drawn(probe))
    except (RuntimeError, AssertionError):
        return False
    return True


def same(one: Any, other: Any) -> bool:
    """Say whether two observations are equal: structure, dtypes, shapes, and values within rounding."""
    (leaves, spec), (others, other_spec) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return spec == other_spec and all(map(_same_leaf, leaves, others))


def _same_leaf(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return type(one) is type(other) and bool(one == other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.is_complex():
        return _same_leaf(*(torch.view_as_real(side.to(torch.complex128)) for side in (one, other)))
    if not one.is_floating_point():
        return torch.equal(one, other)
    close = torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True) and one.stride() == other.stride()
    return close and torch.equal(one.signbit() & (one == 0), other.signbit() & (other == 0))

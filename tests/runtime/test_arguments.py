"""What counts as the arguments that a module was compiled with: sizes, dicts in another order, modules."""

from __future__ import annotations

import copy
import math
import re
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import register_pytree_node, tree_structure

import trtcache
from tests.models import Pair
from trtcache.errors import ExportError, InputError
from trtcache.runtime.argument_order import LEAF, flatten
from trtcache.runtime.module_call import CallSignature
from trtcache.runtime.program import PlainSignature

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X, Y, Z = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, cache=engines, **{"backend": interpreter, **kwargs})

    return compile_


class Reshaped(nn.Module):
    """A view of a shape that is an argument."""

    def forward(self, x: torch.Tensor, shape: Any) -> torch.Tensor:
        return x.view(shape) * 2


class Named(nn.Module):
    """Arguments in a dict in a list."""

    def forward(self, x: torch.Tensor, named: Any) -> torch.Tensor:
        return x + named[0]["p"] * 2 - named[0]["q"]


class Applied(nn.Module):
    """A module that is applied to a tensor, both given in the call."""

    def forward(self, x: torch.Tensor, inner: nn.Module, other: nn.Module | None = None) -> torch.Tensor:
        return inner(x) if other is None else inner(other(x))


@pytest.mark.parametrize("example", [(4, 3), torch.Size((4, 3))], ids=["tuple", "size"])
def test_a_size_and_a_tuple_are_one_argument(compiled: Callable[..., trtcache.CompiledModule], example: Any) -> None:
    """As in ``ExportedProgram.module()``, whichever of them was exported; a list is another thing."""
    module = compiled(Reshaped(), (X, example))
    for shape in ((4, 3), torch.Size((4, 3))):
        assert torch.equal(module(X, shape), X.view(4, 3) * 2)
    with pytest.raises(InputError, match=r"argument shape\[0\]: expected 4, got 2 \(int\)"):
        module(X, torch.Size((2, 6)))
    with pytest.raises(InputError, match="argument shape: expected a tuple of 2, got a list of 2"):
        module(X, [4, 3])


def test_a_dict_may_have_its_keys_in_another_order(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Values go by their keys; the order of an ``OrderedDict`` means something."""
    module = compiled(Named(), (X, [{"p": Y, "q": Z}]))
    for named in ({"p": Y, "q": Z}, {"q": Z, "p": Y}):
        assert torch.equal(module(X, [named]), X + Y * 2 - Z)
    for named in ({"p": Y}, {"p": Y, "r": Z}, OrderedDict(p=Y, q=Z), (Y, Z)):
        with pytest.raises(InputError, match=r"argument named\[0\]: expected a dict of 'p', 'q'"):
            module(X, [named])
    with pytest.raises(InputError, match=r"argument named\[0\]\['p'\]: expected a tensor or another single value"):
        module(X, [{"q": Z, "p": [Y]}])
    ordered = compiled(Named(), (X, [OrderedDict(p=Y, q=Z)]))
    with pytest.raises(InputError, match="an OrderedDict of 'q', 'p'"):
        ordered(X, [OrderedDict(q=Z, p=Y)])


@pytest.mark.parametrize("backend", ["interpreter", "aot_inductor"])
def test_a_module_is_an_argument_by_its_tensors(compiled: Callable[..., trtcache.CompiledModule], backend: str) -> None:
    """Another module of the same setup answers with its own weights, in a second compile as well."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    for _ in range(2):
        module = compiled(Applied(), (X, first), backend=backend)
        for inner in (first, second):
            torch.testing.assert_close(module(X, inner), inner(X))
        with pytest.raises(InputError, match="argument inner: expected a module that is set up"):
            module(X, nn.Linear(4, 5))
        for wrong in (nn.Linear(4, 4, bias=False), nn.Bilinear(4, 4, 4), X):
            with pytest.raises(InputError, match="argument inner: expected a Linear of 2"):
                module(X, wrong)


def test_a_module_of_another_setup_is_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Its flags and numbers are part of the program, which a weight is not."""
    steep, flat, linear = nn.LeakyReLU(0.5), nn.LeakyReLU(0.1), nn.Linear(4, 4)
    module = compiled(Applied(), (X, steep, linear))
    assert torch.equal(module(X, copy.copy(steep), linear), steep(linear(X)))
    with pytest.raises(InputError, match="expected a module that is set up as when compiling"):
        module(X, flat, linear)
    hooked = copy.deepcopy(linear)
    hooked.register_forward_hook(lambda *_: X)
    with pytest.raises(InputError, match=r"argument other: expected a module that is set up as when compiling"):
        module(X, steep, hooked)
    pair = compiled(Applied(), (X, steep, flat))
    assert torch.equal(pair(X, steep, flat), steep(flat(X)))
    with pytest.raises(InputError, match="set up as when compiling"):
        pair(X, flat, steep)
    steep.negative_slope = 0.1
    with pytest.raises(InputError, match="set up as when compiling"):
        pair(X, steep, flat)


def test_a_module_that_shares_weights_with_another_is_refused(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """torch.export takes a tensor that comes twice for one."""
    linear = nn.Linear(4, 4)
    with pytest.raises(ExportError, match="shares a tensor with the model or another argument; pass a copy"):
        compiled(Applied(), (X, linear, linear))


def test_the_key_of_a_module_argument_does_not_depend_on_the_process(interpreter: str) -> None:
    """It has the module's class and the names of its tensors, not its address."""
    keys = {trtcache.key(Applied(), (X, nn.Linear(4, 4)), backend=interpreter).digest for _ in range(2)}
    assert len(keys) == 1


class ByKey(nn.Module):
    """A sum of tensors, each times its key."""

    def forward(self, named: Any) -> torch.Tensor:
        found = named.items() if hasattr(named, "items") else named[0]["inner"].items()
        return sum(value * _number(key) for key, value in found)  # type: ignore[return-value]


def _number(key: Any) -> Any:
    return math.copysign(1, key) if key == 0 and type(key) is float else sum(key) if isinstance(key, tuple) else key


@dataclass(frozen=True)
class Key:
    """A key that can be added to nothing."""

    number: Any


MAKERS: dict[str, Any] = {
    "dict": lambda key: {key: K},
    "two keys": lambda key: {2: K, key: K},
    "ordered": lambda key: OrderedDict({key: K}),
    "default": lambda key: defaultdict(list, {key: K}),
    "nested": lambda key: [{"inner": {key: K}}],
}
K = torch.arange(3)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    "keys",
    [(1, 1.0, True), (1.0, 1), (True, 1), (0.0, -0.0, 0, False), (-0.0, 0.0), ((1, 2), (1.0, 2), (1, 2.0))],
    ids=str,
)
def test_keys_are_told_apart_by_type_and_sign(
    compiled: Callable[..., trtcache.CompiledModule], make: Callable[[Any], Any], keys: tuple[Any, ...], tmp_path: Path
) -> None:
    """A program compiled for one key refuses those that compare equal."""
    module = compiled(ByKey(), (make(keys[0]),))
    modules = [module]
    if isinstance(keys[0], int):  # a file names no other numbers
        trtcache.export(module, tmp_path / "program.pt2")
        modules.append(trtcache.load(tmp_path / "program.pt2", trust="local-file"))  # type: ignore[arg-type]
    for one in modules:
        result, expected = one(make(keys[0])), ByKey()(make(keys[0]))
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)
        for key in keys[1:]:
            with pytest.raises(InputError, match=re.escape(repr(key))):
                one(make(key))


@pytest.mark.parametrize("key", [1, 1.5, (1, 2), Key(1), torch.float32, float("nan"), None, True, b"a", frozenset({1})])
def test_a_key_of_any_kind_is_taken_again(key: Any) -> None:
    """Also in another order, and one that equals nothing else."""
    call = CallSignature(tree_structure((({"a": 0, key: 0},), {})), tree_structure(0), None)
    for given in ({"a": 1, copy.copy(key): 2}, {key: 2, "a": 1}):
        assert call.flatten((given,), {}) == [1, 2]
    plain = PlainSignature(flatten((({"a": 0, key: 0},), {}))[1], LEAF, None)
    for given in ({"a": 1, copy.copy(key): 2}, {key: 2, "a": 1}):
        assert plain.flatten((given,), {}) == [1, 2]


@pytest.mark.parametrize(
    ("key", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), ((1,), (1.0,)), (Key(1), Key(1.0)), (1 + 0j, 1), (Pair(1, 2), (1, 2))],
)
def test_a_key_that_compares_equal_is_another(key: Any, other: Any) -> None:
    """With torch and without, beside keys in the same order and in another one."""
    calls = [
        CallSignature(tree_structure((({"a": 0, key: 0},), {})), tree_structure(0), None),
        PlainSignature(flatten((({"a": 0, key: 0},), {}))[1], LEAF, None),
    ]
    for call in calls:
        for given in ({"a": 1, other: 2}, {other: 2, "a": 1}):
            with pytest.raises(
                InputError, match=f"argument 0: expected a dict of 'a', {re.escape(repr(key))}, got a dict"
            ):
                call.flatten((given,), {})


class Sided:
    """A class with a context of its own."""

    def __init__(self, parts: Any, context: Any) -> None:
        self.parts, self.context = parts, context


register_pytree_node(Sided, lambda one: (one.parts, one.context), Sided, serialized_type_name="tests.arguments.Sided")


@pytest.mark.parametrize(("context", "other"), [(1, 1.0), ([1], [True]), ((0.0,), (-0.0,)), ("a", "b")])
def test_contexts_are_told_apart_by_type_and_sign(context: Any, other: Any) -> None:
    """What a registered class has beside its tensors is part of the program."""
    call = CallSignature(tree_structure(((Sided([0], context),), {})), tree_structure(0), None)
    assert call.flatten((Sided([1], copy.deepcopy(context)),), {}) == [1]
    with pytest.raises(InputError, match="argument 0: expected a Sided of 1"):
        call.flatten((Sided([1], other),), {})

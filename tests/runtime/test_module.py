"""A compiled module: what it refuses, how it is refitted, and what threads see."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_structure
from torch.utils.flop_counter import FlopCounterMode

import trtcache
from tests.comparing import difference, mixed_results
from tests.models import Affine, Calls, Changing, Constants, KeyValue, Keywords, Pair, Tied, Weights, nested_tensor
from trtcache.errors import ExportError, InputError, RefitError
from trtcache.runtime.module_call import CallSignature

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, backend=interpreter, cache=engines, **kwargs)

    return compile_


def test_an_error_names_the_range_of_a_size(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Of a tensor with another number of dimensions; where a fixed size differs, the dynamic one is not blamed."""
    rows = torch.export.Dim("rows", min=1, max=64)
    module = compiled(nn.Linear(4, 2).eval(), (X,), dynamic_shapes=({0: rows},))
    for x, message in (
        (X[0], r"expected shape \(s0, 4\), got shape \(4,\); s0 is any size from 1 to 64$"),
        (torch.zeros(3, 5), r"expected shape \(s0, 4\), got shape \(3, 5\); compile with dynamic sizes for other"),
        (torch.zeros(65, 4), r"expected size 1 to 64 in dimension 0, got 65"),
    ):
        with pytest.raises(InputError, match=message):
            module(x)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((X,), {}, "argument scale: expected 3.0, got 2.0"),
        ((X,), {"scale": 3}, "argument scale: expected 3.0, got 3 .int."),
        ((X,), {"scale": 3.0, "flag": True}, "argument flag: expected the model's own default"),
        ((X, X), {"scale": 3.0}, "argument y: expected the model's own default"),
        ((), {}, "missing a required argument: 'x'"),
        ((X, X, X), {}, "too many positional arguments"),
        ((X,), {"scal": 3.0}, "unexpected keyword argument 'scal'"),
        ((X,), {"scale": X}, "argument scale: expected 3.0, got a tensor of shape"),
        ((None,), {"scale": 3.0}, "argument x: expected a float32 tensor, got None"),
        ((X.double(),), {"scale": 3.0}, r"argument x: expected float32, got float64; use .to\(torch.float32\)"),
        ((torch.randn(4, 4),), {"scale": 3.0}, r"shape \(3, 4\), got shape \(4, 4\); compile with dynamic sizes"),
        ((X[0],), {"scale": 3.0}, r"argument x: expected shape \(3, 4\), got shape \(4,\)"),
        ((X.to("meta"),), {"scale": 3.0}, "argument x: expected a tensor on cpu, got one on meta"),
        ((X.to_sparse(),), {"scale": 3.0}, "argument x: expected a dense tensor"),
        ((X.to_mkldnn(),), {"scale": 3.0}, "argument x: expected a dense tensor"),
        (([X],), {"scale": 3.0}, "argument x: expected a float32 tensor, got a list"),
        ((X.numpy(),), {"scale": 3.0}, "expected a float32 tensor, got a ndarray; use torch.from_numpy"),
    ],
)
def test_a_call_that_does_not_match_is_one_clear_error(
    compiled: Callable[..., trtcache.CompiledModule], args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """The error names the argument as the model does, what was expected and what came."""
    module = compiled(Keywords(), (X,), {"scale": 3.0})
    with pytest.raises(InputError, match=message):
        module(*args, **kwargs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_without_memory_is_refused(compiled: Callable[..., trtcache.CompiledModule], dynamic: bool) -> None:
    """A storage that was freed, a zero tensor and a nested one, which have no bytes that an engine could read."""
    sizes = ({0: torch.export.Dim("rows")},) if dynamic else None
    module = compiled(nn.Linear(4, 4), (X,), dynamic_shapes=sizes)
    freed = X.clone()
    freed.untyped_storage().resize_(0)
    for given, message in (
        (freed, "expected a tensor with memory, got a tensor whose memory was freed"),
        (torch._efficientzerotensor((3, 4)), "expected a tensor with memory, got a zero tensor"),
        (nested_tensor(), r"expected a dense tensor, got a nested tensor; use .to_padded_tensor\(0.0\)"),
    ):
        with pytest.raises(InputError, match=message):
            module(given)


@pytest.mark.parametrize("given", [None, [X], 3])
def test_an_argument_that_is_no_tensor_is_named_under_a_mode(
    compiled: Callable[..., trtcache.CompiledModule], given: object
) -> None:
    """A mode that sees the operators of a call, such as one that counts them, gets the same error."""
    module = compiled(nn.Linear(4, 4), (X,))
    with FlopCounterMode(display=False), pytest.raises(InputError, match="input: expected a float32 tensor, got"):
        module(given)


def test_arguments_of_a_variable_signature_are_counted(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """More, fewer or other arguments than compiled for are refused, by the names the model gives them."""
    module = compiled(Calls(lambda lin, *args, **more: sum(args)), (X, X + 1), {"k": X})
    for args, kwargs, message in (
        ((X,), {"k": X}, r"args\[1\] is missing"),
        ((X, X, X), {"k": X}, r"argument args\[2\]"),
        ((X, X), {"k": X, "j": X}, "argument j"),
        ((X, X), {}, "k is missing"),
    ):
        with pytest.raises(InputError, match=message):
            module(*args, **kwargs)


def test_nested_arguments_are_named_by_their_place(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A wrong tensor deep in an argument is named with its path, and so is the place of another structure."""
    module = compiled(Calls(lambda lin, d: lin(d["a"]) + d["b"][0]), ({"a": X, "b": [X, X]},))
    with pytest.raises(InputError, match=r"argument args\[0\]\['b'\]\[1\]: expected float32"):
        module({"a": X, "b": [X, X.double()]})
    for wrong, message in (
        ({"a": X, "b": [X]}, r"argument args\[0\]\['b'\]: expected a list of 2, got a list of 1"),
        ({"a": X, "c": [X, X]}, r"argument args\[0\]: expected a dict of 'a', 'b', got a dict of 'a', 'c'"),
        (
            {"a": (X,), "b": [X, X]},
            r"argument args\[0\]\['a'\]: expected a tensor or another single value, got a tuple of 1",
        ),
    ):
        with pytest.raises(InputError, match=message):
            module(wrong)


@pytest.mark.parametrize(
    ("compiled_for", "given", "message"),
    [
        (Pair(1, 2), (1, 2), "a Pair of {names}, got a tuple of 2"),
        (Pair(1, 2), 1, "a Pair of {names}, got a tensor or another single value"),
        (OrderedDict(a=1), {"a": 1}, "an OrderedDict of 'a', got a dict of 'a'"),
        ({"a": 1}, defaultdict(list, b=1), "a dict of 'a', got a defaultdict of 'b'"),
        (deque([1]), deque([1], maxlen=4), "a deque of 1 (None), got a deque of 1 (4)"),
    ],
)
def test_structures_are_told_in_words(compiled_for: Any, given: Any, message: str) -> None:
    """By their types and the names of their parts; where that is the same, by what else torch knows of them."""
    call = CallSignature(tree_structure(((compiled_for,), {})), tree_structure(0), None)
    with pytest.raises(InputError) as refused:
        call.flatten((given,), {})
    assert str(refused.value) == f"argument 0: expected {message.format(names=', '.join(Pair._fields))}"


@pytest.mark.parametrize(("value", "other"), [(0.0, -0.0), (1, True), (1, 1.0), ("a", "b"), (None, 0)])
def test_values_are_told_apart_by_type_and_sign(
    compiled: Callable[..., trtcache.CompiledModule], value: object, other: object
) -> None:
    """A program compiled for one Python value refuses every other, even one that compares equal."""
    module = compiled(Calls(lambda lin, x, v: lin(x)), (X, value))
    module(X, value)
    with pytest.raises(InputError, match="compiled for this value"):
        module(X, other)


def test_not_a_number_is_itself(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A program compiled for nan takes another nan; torch 2.11 cannot decompose it."""
    if torch.__version__ < "2.13":
        with pytest.raises(ExportError, match="name 'nan' is not defined"):
            compiled(Calls(lambda lin, x, v: lin(x)), (X, float("nan")))
        return
    module = compiled(Calls(lambda lin, x, v: lin(x)), (X, float("nan")))
    assert module(X, float("nan")).shape == X.shape


def test_tensors_without_memory_are_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A fake tensor has nothing to read; where calls change weights, no operator stands for the engine."""
    module = compiled(KeyValue(), (X, torch.arange(3)))
    with torch._subclasses.FakeTensorMode():
        fake = torch.empty(3, 4)
    with pytest.raises(InputError, match="plain tensor"):
        module(fake, torch.arange(3))


def test_changed_inputs_are_changed_for_the_caller(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """What the model does to an input in place is seen by the caller, in whatever layout the input lies."""
    model = Changing()
    module = compiled(model, (X.clone(), {"k": torch.ones(4)}))
    for make in (lambda: torch.ones(3, 4), lambda: torch.ones(4, 3).t(), lambda: torch.ones(6, 8)[::2, ::2]):
        ours, theirs = (make(), {"k": torch.ones(4)}), (make(), {"k": torch.ones(4)})
        assert difference(model(*theirs), module(*ours)) is None
        assert difference(theirs, ours) is None


def test_inputs_that_share_memory_with_a_changed_one_are_refused(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """An engine reads everything before it writes, so aliased inputs would give another result than eager."""
    model = Calls(lambda lin, x, y: x.add_(1) * y)
    module = compiled(model, (X.clone(), X.clone()))
    whole = torch.ones(6, 4)
    assert difference(torch.full((3, 4), 2.0), module(whole[::2], whole[1::2])) is None
    for one, other in ((X, X), (whole[:3], whole[2:5])):
        with pytest.raises(InputError, match="memory of its own: a call changes argument"):
            module(one, other)
    for strides in ((0, 1), (1, 1), (2, 1)):
        with pytest.raises(InputError, match="a tensor that a call can change, got one whose elements share memory"):
            module(torch.ones(40).as_strided((3, 4), strides), X.clone())
    for strides in ((1, 3), (9, 2)):
        module(torch.ones(40).as_strided((3, 4), strides), X.clone())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, r"missing: [abc], [abc], [abc]\)"),
        ({"a": torch.ones(4, 4)}, r"missing: [bc], [bc]\)"),
        ({"z": X}, "unexpected: z"),
        ({"b": torch.ones(5)}, r"b \(shape \(5,\), the engine has \(4,\)\)"),
        ({"a": torch.ones(4, 4).double()}, r"a \(dtype float64, the engine has float32\)"),
        ({"a": torch.ones(4, 4, device="meta")}, r"a \(on meta, the engine expects it on cpu\)"),
        ({"a": torch.ones(4, 4).to_sparse()}, r"a \(layout torch.sparse_coo"),
        ({"a": "text"}, r"a \(a str, not a tensor\)"),
    ],
)
def test_a_refit_that_does_not_fit_changes_nothing(
    compiled: Callable[..., trtcache.CompiledModule], weights: dict[str, Any], message: str
) -> None:
    """Missing, unknown and misshapen weights are named, and the old weights stay in place."""
    module = compiled(Affine(1.0), (X,))
    before = module(X)
    whole = {} if message.startswith("missing") else Affine(2.0).state_dict()
    with pytest.raises(RefitError, match=message):
        module.refit({**whole, **weights})
    assert difference(before, module(X), tolerance=0.0) is None


def test_a_refit_takes_a_module_or_a_mapping(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Anything else is a TypeError that says so."""
    module = compiled(Affine(), (X,))
    with pytest.raises(TypeError, match=r"a torch.nn.Module or its state_dict, not list"):
        module.refit([("a", X)])  # type: ignore[arg-type]


def test_after_a_refit_the_first_of_tied_weights_counts(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Also if the given model has equal weights that are apart: only the first is read after that."""

    def make() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False)).eval()

    tied, apart, x = make(), make(), torch.randn(2, 4)
    tied[2].weight = tied[0].weight
    apart.load_state_dict(tied.state_dict())
    module = compiled(tied, (x,))
    module.refit(apart)
    with torch.no_grad():
        before = module(x)
        apart[2].weight.mul_(2)
        assert torch.equal(module(x), before)
        apart[0].weight.mul_(2)
        torch.testing.assert_close(module(x), apart(x))


def test_weights_that_are_tied_stay_tied(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Tied names need equal values, whether they share memory or not; one of the names is enough."""
    index = torch.tensor([0, 1, 2])
    module, other = compiled(Tied(), (index,)), Tied()
    state = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    module.refit(state)
    assert difference(other(index), module(index)) is None
    with pytest.raises(RefitError, match=r"tied to out\.weight"):
        module.refit({**state, "out.weight": state["out.weight"] + 1})
    del state["out.weight"]
    module.refit(state)
    assert difference(other(index), module(index)) is None


@pytest.mark.parametrize("first", range(4))
def test_weights_come_in_any_layout(compiled: Callable[..., trtcache.CompiledModule], first: int) -> None:
    """A program compiled with a weight in one layout takes that weight in every other."""
    big = torch.randn(10, 12)
    made = [torch.randn(4, 6), torch.randn(6, 4).t(), big[1:5, 2:8], torch.randn(4, 1).expand(4, 6)]
    module = compiled(Weights(made[first]), (X,))
    for weight in made:
        module.refit({"w": weight})
        assert difference(Weights(weight)(X), module(X)) is None


@pytest.mark.parametrize("other", [Constants(start=1.0), Constants(scale=7.0)])
def test_a_module_with_other_constants_is_refused(
    compiled: Callable[..., trtcache.CompiledModule], other: Constants
) -> None:
    """Buffers that are in no state_dict and tensors that are plain attributes are the program's, folded or not."""
    module = compiled(Constants(), (X,))
    module.refit(Constants())
    with pytest.raises(RefitError, match="a constant of the program; compile the new model instead"):
        module.refit(other)


class Holding(nn.Module):
    """A model with a weight, and a tensor in a container or object, which an export names by a number."""

    def __init__(self, place: str, value: torch.Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))
        self.place = place
        self.held: Any = {"list": [[value]], "dict": {"a": value}, "tuple": (1, value), "object": Pair(value, 1)}[place]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the tensor, and one that is created here."""
        held = self.held
        found = {"list": lambda: held[0][0], "dict": lambda: held["a"], "tuple": lambda: held[1]}
        value = found.get(self.place, lambda: held.first)()
        return x @ self.w + value + torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("place", ["list", "dict", "tuple", "object"])
def test_a_module_with_other_constants_in_containers_is_refused(
    compiled: Callable[..., trtcache.CompiledModule], place: str
) -> None:
    """An equal tensor must be in the same place."""
    value = torch.arange(3.0)
    module = compiled(Holding(place, value), (X,))
    other = Holding(place, value.clone())
    nn.init.constant_(other.w, 2.0)
    module.refit(other)
    assert difference(other(X), module(X)) is None
    elsewhere = Holding("object" if place == "list" else "list", value)
    for refused in (elsewhere, Holding(place, value * 5)):
        with pytest.raises(RefitError, match="not registered, and not as in the compiled model"):
            module.refit(refused)
    assert difference(other(X), module(X)) is None


def test_a_mapping_with_other_constants_is_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """As a module is; equal ones may be among its weights. ``load_state_dict`` takes none, as torch does."""
    model, other = Constants(), Constants(start=1.0)
    module = compiled(model, (X,))
    state = {**model.state_dict(), "scale": model.scale, **dict(model.named_buffers())}
    module.refit(state)
    for change in (module.refit, module.with_weights):
        with pytest.raises(RefitError, match=r"positions .a constant of the program; compile the new model instead"):
            change({**state, "positions": other.positions})
    for one in (model, module):
        with pytest.raises(RuntimeError, match=r"Unexpected key.* \"positions\""):
            one.load_state_dict({**model.state_dict(), "positions": model.positions})


def test_state_that_no_state_dict_has_survives_a_refit(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A cache of keys and values goes on across a refit that cannot name it."""
    model, where = KeyValue(), torch.arange(3)
    module = compiled(model, (X, where))
    with torch.no_grad():
        model(X, where)
        module(X, where)
        module.refit(model.state_dict())
        assert difference(model(X, where + 3), module(X, where + 3)) is None


class Extra(nn.Module):
    """A module with more in its state_dict than weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def get_extra_state(self) -> dict[str, int]:
        """Return what is no tensor."""
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Take it back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        return self.lin(x)


def test_extra_state_is_no_weight(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """What ``get_extra_state`` returns neither stops a compile nor a refit."""
    module, other = compiled(Extra(), (X,)), Extra()
    module.refit(other)
    assert difference(other(X), module(X)) is None


def test_each_call_during_refits_sees_one_set_of_weights(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """While weights change to and fro, every result of four threads is that of the old or of the new, never a mix."""
    one, two = Affine(1.0), Affine(2.0)
    assert mixed_results(compiled(one, (X,)), (one, two), X, seconds=1.0) == []


def test_inference_mode_and_gradients_make_no_difference(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A module compiled in inference mode runs outside it and the other way round; results have no gradient."""
    model = Affine()
    with torch.inference_mode():
        module = compiled(model, (X,))
    wanted = X.clone().requires_grad_()
    found = module(wanted)
    assert difference(model(X), found) is None
    assert not any(tensor.requires_grad for tensor in found)
    with torch.inference_mode():
        assert difference(model(X), module(X)) is None
        module.refit(Affine(3.0))
    assert difference(Affine(3.0)(X), module(X)) is None


def test_autocast_makes_no_difference(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A program has the casts with which it was exported; an operator with others returned what its engine misread."""
    model = nn.Linear(4, 2).eval()
    module = compiled(model, (X,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(X)
        assert torch.is_autocast_enabled("cpu")
    assert difference(model(X), found) is None

"""What ``forward`` changes besides tensors is not in a program: a warning says so."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import trtcache
from tests.models import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunPython

pytestmark = pytest.mark.usefixtures("own_threads_only")
X = torch.ones(2, 4)


def counts(state: Any) -> Callable[..., torch.Tensor]:
    """Return a function that counts its calls in an attribute."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        state.count += 1
        return x * state.count

    return function


def counts_in(numbers: Any, key: Any) -> Callable[..., torch.Tensor]:
    """Return a function that counts its calls in a container."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        numbers[key] += 0.5
        return x * numbers[key]

    return function


def draws(draw: Callable[[], Any]) -> Callable[..., torch.Tensor]:
    """Return a function that draws a number in Python."""
    return lambda _, x: x + float(draw())


CHANGES: dict[str, tuple[Any, Callable[[Any], Callable[..., torch.Tensor]], str]] = {
    "attribute": (SimpleNamespace(count=0), counts, "the number count of a SimpleNamespace from 0 to 1"),
    "item": ({"n": 1}, lambda numbers: counts_in(numbers, "n"), "the number n of a dict from 1 to 1.5"),
    "element": ([1.0, 2.0], lambda numbers: counts_in(numbers, 1), "the number 1 of a list from 2.0 to 2.5"),
    "Python": (random.random, draws, "draws from Python's"),
    "NumPy": (np.random.random, draws, "draws from Python's or NumPy's"),
    "seed": (lambda: torch.manual_seed(3) and 1, draws, "seeds a generator"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_warning_says_what_an_engine_lacks(interpreter: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The model itself is as before."""
    state, make, message = CHANGES[name]
    model = Calls(make(state))
    model.state = state
    before = str(state)
    with torch.random.fork_rng(), caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.key(model, (X,), backend=interpreter)
    assert message in caplog.text
    assert str(state) == before


COUNT, COUNTS = 0, {"calls": [2]}


class Counting(Calls):
    """A model with a number in its class."""

    count = 1.5


def in_global(_: object, x: torch.Tensor) -> torch.Tensor:
    """Count calls in a global name, a list in a dict, and a class attribute."""
    global COUNT
    COUNT += 1
    COUNTS["calls"][0] += 3
    Counting.count += 1
    return x * COUNT


def test_a_warning_names_the_numbers_beside_a_model(interpreter: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each once."""
    count = 0

    def in_closure(_: object, x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 7
        return x * count

    for function, *numbers in (
        (
            in_global,
            "count of the class Counting from 1.5",
            f"COUNT of the module {__name__} from 0",
            "0 of a list from 2",
        ),
        (in_closure, "content of a closure from 0"),
    ):
        caplog.clear()
        with caplog.at_level("WARNING", "trtcache.lowering"):
            trtcache.key(Counting(function), (X,), backend=interpreter)
        for number in numbers:
            assert caplog.text.count(number) == 1, caplog.text


GENERATORS: dict[str, Callable[[], Any]] = {
    "Python": lambda: random.Random(3),  # nothing is secret
    "NumPy": lambda: np.random.default_rng(3),
    "NumPy before 1.17": lambda: np.random.RandomState(3),
}
KEPT: dict[str, Any] = {}


@pytest.mark.parametrize("place", ["attribute", "object", "global name", "closure"])
@pytest.mark.parametrize("kind", GENERATORS)
def test_generators_of_a_model_have_not_drawn_after_an_export(
    interpreter: str, kind: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says that an engine has one number."""
    generator = KEPT["generator"] = GENERATORS[kind]()
    model = Calls(draws(lambda: KEPT["generator"].random()))
    if place == "closure":
        model = Calls(draws(lambda: generator.random()))
    elif place != "global name":
        model.kept = generator if place == "attribute" else SimpleNamespace(one=[generator])
        model.function = lambda _, x: x + (model.kept if place == "attribute" else model.kept.one[0]).random()
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.key(model, (X,), backend=interpreter)
    assert "draws from Python's or NumPy's" in caplog.text
    assert generator.random() == GENERATORS[kind]().random()


@pytest.mark.parametrize("draw", [random.random, np.random.random])
def test_the_generators_of_a_process_have_not_drawn_after_an_export(
    interpreter: str, draw: Callable[[], float]
) -> None:
    """They are as before it."""
    random.seed(5)
    np.random.seed(5)
    expected = draw()
    random.seed(5)
    np.random.seed(5)
    trtcache.key(Calls(draws(draw)), (X,), backend=interpreter)
    assert draw() == expected


class Slotted:
    """A tensor in a slot."""

    __slots__ = ("total",)


class Summing(Calls):
    """A model with a tensor in its class."""

    total = torch.zeros(4)


TOTAL: Any = torch.zeros(4)


def adds_in(owner: Any, name: str = "total") -> Callable[..., torch.Tensor]:
    """Return a function that adds up its inputs in an attribute."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        setattr(owner, name, getattr(owner, name) + x[0])
        return x * getattr(owner, name)

    return function


def adds_in_item(owner: Any, key: Any) -> Callable[..., torch.Tensor]:
    """Return a function that adds up its inputs in an item of a container."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        owner.kept[key] = owner.kept[key] + x[0]
        return x * owner.kept[key]

    return function


def adds_in_global() -> Callable[..., torch.Tensor]:
    """Return a function that adds up its inputs in a global name."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        global TOTAL
        TOTAL = TOTAL + x[0]
        return x * TOTAL

    return function


def adds_in_closure() -> Callable[..., torch.Tensor]:
    """Return a function that adds up its inputs in a name of the function around it."""
    total = torch.zeros(4)

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total = total + x[0]
        return x * total

    return function


def keeps_pair(owner: Any) -> Callable[..., torch.Tensor]:
    """Return a function that keeps two tensors in a tuple."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        one, other = owner.pair
        owner.pair = (one + x[0], other)
        return x * one

    return function


REPLACED: dict[str, tuple[Callable[[Any], Callable[..., torch.Tensor]], str]] = {
    "attribute": (adds_in, "total of a SimpleNamespace"),
    "slot": (lambda state: adds_in(state.slotted), "total of a Slotted"),
    "item": (lambda state: adds_in_item(state, "n"), "n of a dict"),
    "tuple": (keeps_pair, "pair of a SimpleNamespace"),
    "global": (lambda _: adds_in_global(), f"TOTAL of the module {__name__}"),
    "class": (lambda _: adds_in(Summing), "total of the class Summing"),
    "closure": (lambda _: adds_in_closure(), "content of a closure"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_warning_names_tensors_that_are_kept_for_the_next_call(
    interpreter: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine has the old ones as constants; the model itself is as before."""
    make, place = REPLACED[name]
    state = SimpleNamespace(total=torch.zeros(4), kept={"n": torch.zeros(4)}, slotted=Slotted())
    state.pair = (torch.zeros(4), torch.ones(4))
    state.slotted.total = torch.zeros(4)
    model = Summing(make(state))
    model.state = state
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.key(model, (X,), backend=interpreter)
    assert caplog.text.count(f"forward replaces the tensor {place}: an engine answers") == 1
    tensors = [state.total, state.kept["n"], state.slotted.total, state.pair[0], TOTAL, Summing.total]
    assert {type(one) for one in tensors} == {torch.Tensor}
    assert not any(map(torch.count_nonzero, tensors))


def grows_table(state: Any) -> Callable[..., torch.Tensor]:
    """Return a function that replaces a table, and reads the new one only."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        if len(state.table) < x.shape[1]:
            state.table = torch.arange(x.shape[1]) + x.new_zeros(())
            state.mask = x.new_ones(4)
        return x * state.table * state.mask

    return function


def test_tables_that_are_replaced_before_they_are_read_are_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """Later calls have the same tables as the first one."""
    state = SimpleNamespace(table=torch.zeros(2), mask=None)
    model = Calls(grows_table(state))
    model.state = state
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.lower(model, (X,))
    assert "forward" not in caplog.text


def test_tensors_of_which_torch_warns_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """torch.export looks at attributes of modules, and at the lists and dicts in them."""

    def function(model: Any, x: torch.Tensor) -> torch.Tensor:
        model.kept["n"][0] = model.kept["n"][0] + x[0]
        model.total = model.total + x[0]
        return x * model.kept["n"][0] * model.total

    model = Calls(function)
    model.lin.kept, model.lin.total = {"n": [torch.zeros(4)]}, torch.zeros(4)
    with caplog.at_level("WARNING", "trtcache.lowering"), pytest.warns(UserWarning, match="assigned during export"):
        trtcache.lower(model, (X,))
    assert "forward" not in caplog.text


def test_results_that_are_kept_for_later_calls_are_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """A size that was not there before, and random operators of torch."""
    kept: dict[Any, Any] = {}

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        kept["size"] = x.shape[1]
        return x + torch.rand_like(x)

    model = Calls(function)
    model.kept = kept
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.lower(model, (X,))
    assert "forward" not in caplog.text
    assert kept == {}


def appends(_: object, x: torch.Tensor, out: Any) -> torch.Tensor:
    """Append to a list within an argument."""
    out["layers"].append(x * 2)
    return x + 1


def sets(_: object, x: torch.Tensor, out: Any) -> torch.Tensor:
    """Set an element of a list to another tensor."""
    out[0] = x * 2
    return out[0] + 1


@pytest.mark.parametrize(("function", "out"), [(appends, {"layers": [X]}), (sets, [X]), (sets, {0: X})])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_warning_names_arguments_whose_containers_are_changed(
    interpreter: str, function: Callable[..., Any], out: Any, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine returns the same, and leaves the caller's list or dict as it is."""
    before = str(out)
    args, kwargs = ((X,), {"out": out}) if is_named else ((X, out), {})
    model = WithOut(function)
    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.key(model, args, kwargs, backend=interpreter)
    assert "forward changes the list or dict in out" in caplog.text
    assert str(out) == before
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_containers_that_are_only_read_are_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """Nor are lists that ``forward`` creates, or tensors that it writes to."""

    def function(_: object, x: torch.Tensor, out: Any) -> Any:
        mine = [*out, x]
        mine.append(x)
        out[0].add_(1)
        return mine[-1] + out[1]["y"]

    with caplog.at_level("WARNING", "trtcache.lowering"):
        trtcache.lower(WithOut(function), (X, [X.clone(), {"y": X}]))
    assert "forward" not in caplog.text


class WithOut(torch.nn.Module):
    """A call of a function with a tensor and a container."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, out: Any) -> Any:
        return self.function(self, x, out)


FIRST = """
import logging, sys, torch, trtcache
logging.basicConfig(stream=sys.stdout, level="WARNING")
assert "numpy.random" not in sys.modules
trtcache.lower(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
"""


def test_the_first_export_of_a_process_draws_nothing(run_fresh_python: RunPython) -> None:
    """It imports NumPy's generator, whose state is none that the model has changed."""
    done = run_fresh_python(FIRST)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

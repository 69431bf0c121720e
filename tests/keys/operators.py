"""Whether a change of one argument of an operator changes the key, for the operators in torch's sample database."""

from __future__ import annotations

import itertools
import signal
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import trtcache
from tests.keys.pairs.pair import same
from trtcache.errors import CanonicalizationError, TrtcacheError
from trtcache.frontends.resolve import resolve
from trtcache.keys.program_digest import exported_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
SAMPLES, CHANGES, LIMIT_S = 40, 12, 60

Leaves = list[Any]
_Path = tuple[Any, ...]


class TooLongError(Exception):
    """An operator took more time than it is given."""


@dataclass(slots=True)
class Outcome:
    """What was found for one operator.

    Attributes:
        name: the operator, as the database calls it.
        dtype: of its first tensors.
        told: changes that change the results, and the key.
        equal: changes that keep the results; the key may be either.
        refused: changes that the operator or torch.export does not take.
        confused: changes that change the results but not the key.
        skipped: why nothing was tried.
    """

    name: str
    dtype: str = ""
    told: list[str] = field(default_factory=list)
    equal: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    confused: list[str] = field(default_factory=list)
    skipped: str = ""


class Applied(torch.nn.Module):
    """An operator with every argument fixed but its tensors."""

    def __init__(self, function: Any, leaves: Leaves, spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.function, self.spec = function, spec
        self.fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.fixed)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator: positional arguments and keywords."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self, function: Any) -> Any:
        """Return what the call returns, on copies of its tensors, as tensors and numbers."""
        torch.manual_seed(0)
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, self.kwargs))
        with torch.no_grad():
            return pytree.tree_map_only(torch.Tensor, _plain, function(*args, **kwargs))

    def key(self, function: Any) -> str:
        """Return the key of a program that makes the call; if torch draws its random numbers, the program's digest.

        Such a program is no single engine, and its digest leads to the key alias with the keys of its engines.
        """
        leaves, spec = pytree.tree_flatten((self.args, self.kwargs))
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        model = Applied(function, leaves, spec)
        try:
            return trtcache.key(model, tensors).digest
        except CanonicalizationError as error:
            if "it draws random numbers" not in str(error):
                raise
        with resolve(model, tensors) as source:
            return exported_digest(source.program()).hex


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg()


def names() -> list[str]:
    """Return the operators of the database, each once."""
    return list(dict.fromkeys(_name(one) for one in op_db))


def _name(one: Any) -> str:
    return f"{one.name}.{one.variant_test_name}" if one.variant_test_name else str(one.name)


def examine(name: str) -> Outcome:
    """Return what changes of single arguments do to the key of an operator."""
    one = next(one for one in op_db if _name(one) == name)
    outcome = Outcome(name)
    with _limited(LIMIT_S, outcome), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _examine(one, outcome)
    return outcome


@contextmanager
def _limited(limit_s: int, outcome: Outcome) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit_s)
    try:
        yield
    except TooLongError:
        if not (outcome.told or outcome.equal or outcome.confused):
            outcome.skipped = f"more than {limit_s} s"
    except Exception as error:  # noqa: BLE001  # one operator's surprise is a line in the table, not the end of the sweep
        outcome.skipped = f"{type(error).__name__}: {_reason(error)}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)


def _examine(one: Any, outcome: Outcome) -> None:
    supported = one.supported_dtypes("cpu")
    dtype = next((dtype for dtype in DTYPES if dtype in supported), None)
    if dtype is None:
        outcome.skipped = "no dtype that is tried"
        return
    if "empty" in outcome.name:
        outcome.skipped = "its results are whatever was in memory"
        return
    outcome.dtype = str(dtype).removeprefix("torch.")
    torch.manual_seed(0)
    calls = _calls(one, dtype)
    if not calls:
        outcome.skipped = "no sample that runs"
        return
    for call, changes in _chosen(calls):
        if why := _base(one.op, call, changes, outcome):
            outcome.skipped = why
        else:
            outcome.skipped = ""
            return


def _calls(one: Any, dtype: torch.dtype) -> list[Call]:
    samples = itertools.islice(one.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)
    calls = [Call((sample.input, *sample.args), dict(sample.kwargs)) for sample in samples]
    return [call for call in calls if _has_elements(call) and _result(one.op, call) is not None]


def _has_elements(call: Call) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor)]
    return all(tensor.numel() and tensor.layout == torch.strided for tensor in tensors)


def _result(function: Any, call: Call) -> Any:
    try:
        result = call.run(function)
    except Exception:  # noqa: BLE001  # whatever an operator says to arguments that it does not take
        return None
    leaves = pytree.tree_leaves(result)
    return result if all(isinstance(leaf, (torch.Tensor, int, float, bool, complex)) for leaf in leaves) else None


def _chosen(calls: list[Call]) -> list[tuple[Call, dict[str, Call]]]:
    """Return the calls with the most changes, three of them, and those changes by what is changed."""
    pool = _pool(calls)
    found = [(call, dict(itertools.islice(_changes(call, pool), 4 * CHANGES))) for call in calls]
    return sorted(found, key=lambda item: -len(item[1]))[:3]


def _pool(calls: Iterable[Call]) -> dict[str | int, list[Any]]:
    """Return every value without tensors that the samples give an argument, by its keyword or place."""
    pool: dict[str | int, list[Any]] = {}
    for call in calls:
        for name, value in (*enumerate(call.args), *call.kwargs.items()):
            known = pool.setdefault(name, [])
            if _is_fixed(value) and not any(_equal(value, other) for other in known):
                known.append(value)
    return pool


def _is_fixed(value: Any) -> bool:
    return not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _changes(call: Call, pool: dict[str | int, list[Any]]) -> Iterator[tuple[str, Call]]:
    """Yield what is changed, and the changed call: arguments near those given, and those that other samples have."""
    for place, value in enumerate(call.args):
        if _is_fixed(value):
            for other in (*_near(value), *_others(value, pool[place])):
                args = (*call.args[:place], other, *call.args[place + 1 :])
                yield f"{place}: {value!r} -> {other!r}", Call(args, call.kwargs)
    for name, values in pool.items():
        if isinstance(name, str) and _is_fixed(call.kwargs.get(name)):
            given = name in call.kwargs
            value = call.kwargs.get(name)
            for other in (*(_near(value) if given else ()), *_others(value, values)):
                yield f"{name}: {value!r} -> {other!r}", Call(call.args, call.kwargs | {name: other})


def _others(value: Any, values: Iterable[Any]) -> list[Any]:
    return [other for other in values if not _equal(value, other)][:3]


def _near(value: Any) -> tuple[Any, ...]:
    """Return values that differ a little from one."""
    match value:
        case bool():
            return (not value,)
        case int():
            return (value + 1, value - 1)
        case float():
            return (value * 1.5 + 0.25,)
        case torch.dtype():
            return tuple(dtype for dtype in (torch.float64, torch.int32) if dtype is not value)
        case tuple() | list() if all(type(one) in {int, float, bool} for one in value):
            changed = ([*value[:place], _near(one)[0], *value[place + 1 :]] for place, one in enumerate(value))
            return (*map(type(value), changed), type(value)(value[::-1]))
        case _:
            return ()


def _base(function: Any, call: Call, changes: dict[str, Call], outcome: Outcome) -> str:
    """Fill in what changes of a call do to its key; return why the call itself has no key, if so."""
    try:
        key = call.key(function)
    except (TrtcacheError, RuntimeError) as error:
        return _reason(error)
    expected = call.run(function)
    for what, changed in changes.items():
        if len(outcome.told) + len(outcome.confused) >= CHANGES:
            break
        _judge(function, (key, expected), (what, changed), outcome)
    return ""


def _judge(function: Any, base: tuple[str, Any], change: tuple[str, Call], outcome: Outcome) -> None:
    what, changed = change
    result = _result(function, changed)
    if result is None:
        outcome.refused.append(what)
        return
    if same(base[1], result):
        outcome.equal.append(what)
        return
    try:
        key = changed.key(function)
    except (TrtcacheError, RuntimeError):
        outcome.refused.append(what)
        return
    (outcome.confused if key == base[0] else outcome.told).append(what)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).partition(" (at ")[0]  # the place in this file
    return text.replace("|", "/")[:160]

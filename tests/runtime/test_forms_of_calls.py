"""Which forms of a call are one call: only those that what runs at the call cannot tell apart."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

import trtcache
from trtcache.bundle.archive import read_signature
from trtcache.bundle.formats import write_signature
from trtcache.errors import InputError
from trtcache.frontends.exported import signature_of_call
from trtcache.runtime.argument_order import LEAF, flatten
from trtcache.runtime.program import PlainSignature

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.ones(2, 3)
Y = X * 2
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Scaled(nn.Module):
    """A product with a number, 2 by default."""

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


class Difference(nn.Module):
    """One argument minus the other."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b


def _with_default_3(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(self: nn.Module, x: torch.Tensor, scale: float = 3.0) -> Any:
        return forward(self, x, scale)

    return wrapper


def _swapped(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(self: nn.Module, b: torch.Tensor, a: torch.Tensor) -> Any:
        return forward(self, a, b)

    return wrapper


def _counting(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **kwargs) + len(args)

    return wrapper


def _of_class(forward: Any, base: type[nn.Module] = Scaled, **more: Any) -> nn.Module:
    made: nn.Module = type("Model", (base,), {"forward": forward, **more})()
    return made


def _own_call(self: nn.Module, x: torch.Tensor, scale: float = 5.0) -> Any:
    return nn.Module.__call__(self, x, scale)


def _own_call_impl(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return nn.Module._call_impl(self, *args, **{"scale": 5.0, **kwargs} if len(args) < 2 else kwargs)


def _with_signature() -> nn.Module:
    def forward(self: nn.Module, x: torch.Tensor, scale: float = 3.0) -> torch.Tensor:
        return x * scale

    forward.__signature__ = __import__("inspect").signature(Scaled.forward)  # type: ignore[attr-defined]
    return _of_class(forward)


def _with_instance_wrapper() -> nn.Module:
    model = Scaled()
    model.forward = _with_default_3(Scaled.forward).__get__(model)  # type: ignore[method-assign]
    return model


def _with_partial() -> nn.Module:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return args[0] * kwargs["scale"] + len(args)

    model = Scaled()
    model.forward = functools.partial(forward, scale=2.0)  # type: ignore[method-assign]
    return model


def _hooked(register: Callable[[nn.Module], Any], model: nn.Module | None = None) -> nn.Module:
    model = model or Scaled()
    register(model)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": Scaled,
    "a wrapper with another default": lambda: _of_class(_with_default_3(Scaled.forward)),
    "such a wrapper of one instance": _with_instance_wrapper,
    "a wrapper that counts": lambda: _of_class(_counting(Scaled.forward)),
    "a partial": _with_partial,
    "another signature": _with_signature,
    "a __call__": lambda: _of_class(Scaled.forward, __call__=_own_call),
    "a _call_impl": lambda: _of_class(
        Scaled.forward, _call_impl=_own_call_impl, _wrapped_call_impl=_own_call_impl, __call__=_own_call_impl
    ),
    "a pre-hook that sets a default": lambda: _hooked(
        lambda m: m.register_forward_pre_hook(lambda _, args, named: (args, {"scale": 7.0, **named}), with_kwargs=True)
    ),
    "a pre-hook that counts": lambda: _hooked(
        lambda m: m.register_forward_pre_hook(lambda _, args: (args[0] + len(args), *args[1:]))
    ),
    "a hook that counts": lambda: _hooked(lambda m: m.register_forward_hook(lambda _, args, out: out + len(args))),
    "a hook that counts names": lambda: _hooked(
        lambda m: m.register_forward_hook(lambda _, args, named, out: out + len(named), with_kwargs=True)
    ),
}
SCALED: list[Call] = [
    ((X,), {}),
    ((X, 2.0), {}),
    ((X,), {"scale": 2.0}),
    ((), {"x": X}),
    ((), {"scale": 2.0, "x": X}),
    ((X, 3.0), {}),
    ((X,), {"scale": 3.0}),
    ((X, 5.0), {}),
    ((X,), {"scale": 7.0}),
]


def _check(model: nn.Module, module: Any, compiled_for: Call, calls: list[Call]) -> int:
    """Compare each call that the module takes with the model's; return how many those are."""
    args, kwargs = compiled_for
    assert torch.equal(module(*args, **kwargs), model(*args, **kwargs))
    taken = 0
    for args, kwargs in calls:
        try:
            found = module(*args, **kwargs)
        except InputError:
            continue
        taken += 1
        assert torch.equal(found, model(*args, **kwargs)), (args[1:], kwargs.keys())
    return taken


@pytest.fixture
def everywhere(interpreter: str, engines: Path, tmp_path: Path) -> Callable[..., list[trtcache.CompiledModule]]:
    """Compile a model, twice and with direct mode, and export and load it."""

    def compile_(model: nn.Module, call: Call) -> list[trtcache.CompiledModule]:
        made = [
            trtcache.compile(model, *call, backend=interpreter, cache=engines, direct=direct)
            for direct in ("off", "on", "on")
        ]
        trtcache.export(made[0], tmp_path / "program.pt2")
        loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
        assert isinstance(loaded, trtcache.CompiledModule)
        return [*made, loaded]

    return compile_


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled_for", SCALED[:4], ids=["x", "x, scale", "x, scale=", "x="])
def test_a_call_in_another_form_answers_as_the_model_or_is_refused(
    everywhere: Callable[..., list[trtcache.CompiledModule]], name: str, compiled_for: Call
) -> None:
    """Whatever stands between the call and ``forward``; of a plain model each form is taken."""
    model = MODELS[name]()
    try:
        model(*compiled_for[0], **compiled_for[1])
    except (TypeError, IndexError):
        pytest.skip("the model itself does not take this call")
    for module in everywhere(model, compiled_for):
        taken = _check(model, module, compiled_for, SCALED)
        assert name != "plain" or taken == 5


@pytest.mark.parametrize("compiled_for", [((X, Y), {}), ((), {"a": X, "b": Y}), ((X,), {"b": Y}), ((X,), {"a": Y})])
@pytest.mark.parametrize(
    "wrapper", [_swapped, _counting, lambda forward: forward], ids=["swapped", "counting", "plain"]
)
def test_names_are_those_of_what_runs(
    everywhere: Callable[..., list[trtcache.CompiledModule]], wrapper: Any, compiled_for: Call
) -> None:
    """Not those of the function that it wraps, which ``inspect.signature`` returns."""
    model = _of_class(wrapper(Difference.forward), Difference)
    calls: list[Call] = [((X, Y), {}), ((Y, X), {}), ((), {"a": X, "b": Y}), ((), {"b": X, "a": Y})]
    calls += [((X,), {"b": Y}), ((X,), {"a": Y})]
    if not _is_taken(model, compiled_for) or (wrapper is _swapped and compiled_for[0] and compiled_for[1]):
        pytest.skip("the model itself, or torch.export, does not take this call")
    answers = [one for one in calls if _is_taken(model, one)]
    for module in everywhere(model, compiled_for):
        taken = _check(model, module, compiled_for, answers)
        assert taken >= 1 if wrapper is _counting else taken == len(answers)


def _is_taken(model: nn.Module, call: Call) -> bool:
    try:
        model(*call[0], **call[1])
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("register", [hooks.register_module_forward_hook, hooks.register_module_forward_pre_hook])
def test_hooks_of_all_modules_count(interpreter: str, engines: Path, register: Any) -> None:
    """They see the arguments of a call as well."""
    with register(lambda *_: None):
        module = trtcache.compile(Scaled(), (X,), backend=interpreter, cache=engines)
    assert torch.equal(module(X), Y)
    for args, kwargs in SCALED[1:]:
        with pytest.raises(InputError, match="pass them as when compiling"):
            module(*args, **kwargs)


class PositionalOnly(nn.Module):
    """An argument by position only, beside others by any name, which can be the same."""

    def forward(self, x: torch.Tensor, /, y: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        return x - y + more.get("x", 0)


class Optional(nn.Module):
    """Arguments by position only with defaults, beside others by any name."""

    def forward(self, x: Any = 2.0, /, *others: torch.Tensor, **more: Any) -> torch.Tensor:
        found = torch.zeros(2, 3) + x
        for place, one in enumerate((*others, more.get("x"), more.get("others[0]"))):
            found = found + (0 if one is None else one * 10 ** (place + 1))
        return found


@pytest.mark.parametrize("model", [PositionalOnly(), Optional()], ids=["only", "optional"])
@pytest.mark.parametrize("place", [0, 2, 4, 5, 8, 12])  # torch.export refuses the others
def test_a_name_is_another_argument_than_a_position(
    everywhere: Callable[..., list[trtcache.CompiledModule]], model: nn.Module, place: int
) -> None:
    """In ``f(x, /, **more)`` more["x"] is not x, and in ``f(*others, **more)`` it can be called ``others[0]``."""
    calls: list[Call] = [
        ((X, Y), {}),
        ((X, Y), {"x": X * 10}),
        ((X,), {"y": Y}),
        ((X,), {"y": Y, "x": X * 10}),
        ((), {}),
        ((X,), {}),
        ((), {"x": X}),
        ((), {"x": 2.0}),
        ((2.0,), {}),
        ((2.0,), {"x": X}),
        ((X, Y), {"others[0]": X}),
        ((X,), {"others[0]": Y}),
        ((X, Y, Y), {}),
    ]
    if not _is_taken(model, calls[place]):
        pytest.skip("the model itself does not take this call")
    answers = [one for one in calls if _is_taken(model, one)]
    for module in everywhere(model, calls[place]):
        assert _check(model, module, calls[place], answers) >= 1


def test_the_error_names_the_form(interpreter: str, engines: Path) -> None:
    """Of a model with a hook, and says why no other one is taken."""
    model = MODELS["a hook that counts"]()
    module = trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    with pytest.raises(
        InputError, match=r"expected 1 positional argument, got 0 positional and x; args\[0\] is missing"
    ):
        module(x=X)
    for args, kwargs in (((X, 2.0), {}), ((X,), {"scale": 2.0}), ((), {"x": X})):
        with pytest.raises(
            InputError, match=r"the model may tell how arguments are passed .* pass them as when compil"
        ):
            module(*args, **kwargs)


def test_the_signature_is_that_of_the_model_at_a_hit(interpreter: str, engines: Path) -> None:
    """A plain model and one with a hook that changes nothing have one program, and one key alias."""
    plain, hooked = Scaled(), Scaled()
    hooked.register_forward_hook(lambda _, args, __: None)
    for model in (plain, hooked, plain):
        module = trtcache.compile(model, (X,), backend=interpreter, cache=engines, direct="on")
        if model is plain:
            assert torch.equal(module(x=X, scale=2.0), Y)
        else:
            with pytest.raises(InputError, match="pass them as when compiling"):
                module(x=X, scale=2.0)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_without_torch_takes_the_same_forms(interpreter: str, engines: Path, name: str) -> None:
    """Its signature is the one of the file."""
    model = MODELS[name]()
    if name == "a partial":  # it needs another call
        pytest.skip("the model itself does not take this call")
    signature = signature_of_call(model)
    plain = PlainSignature(flatten(((X,), {}))[1], LEAF, read_signature(write_signature(signature)))
    module = trtcache.compile(model, (X,), backend=interpreter, cache=engines)
    for args, kwargs in SCALED:
        try:
            plain.flatten(args, kwargs)
        except InputError:
            continue
        assert torch.equal(module(*args, **kwargs), model(*args, **kwargs))


class Graded(nn.Module):
    """A model that computes without gradients."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


class Traced(nn.Module):
    """A model whose graph can be traced."""

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


def test_torchs_own_wrappers_pass_arguments_on() -> None:
    """``torch.no_grad`` as a decorator, and the call of a ``GraphModule``."""
    assert [*signature_of_call(Graded()).parameters] == ["x", "scale"]
    assert [*signature_of_call(torch.fx.symbolic_trace(Traced())).parameters] == ["x", "scale"]
    hooked = Graded()
    hooked.register_forward_pre_hook(lambda _, args: None)
    assert str(signature_of_call(hooked)) == "(*args, **kwargs)"

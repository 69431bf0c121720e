"""Changes of a model, its code, its inputs and its surroundings: which must be noticed, and which must not."""

from __future__ import annotations

import copy
import decimal
import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.direct.package import X, edit, load, part, tiny

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Subject:
    """What is compiled, and around it what a change can be of."""

    package: Path
    monkeypatch: Any
    model: nn.Module
    args: tuple[Any, ...] = (X,)
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    @property
    def block(self) -> Any:
        """The block of the model, whose attributes are most of its own."""
        return self.model.first

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the test ends."""
        self.monkeypatch.setattr(owner, name, value, raising=False)

    def edited(self, name: str, before: str, after: str) -> None:
        """Edit a file of the package, and load it as a new process does."""
        edit(self.package, name, before, after)
        self.loaded(self.package)

    def loaded(self, package: Path) -> None:
        """Load the package as a new process does."""
        load(package)
        self.model = tiny()


Change = Callable[[Subject], None]


def _another(name: str, value: Any) -> Change:
    return lambda one: setattr(one.block, name, value)


def _in_helper(name: str, value: Any) -> Change:
    return lambda one: one.set(part("helper"), name, value)


def _state(set_to: Callable[[Any], Any], value: Any, before: Any) -> Change:
    @contextmanager
    def around() -> Iterator[None]:
        set_to(value)
        try:
            yield
        finally:
            set_to(before)

    def change(one: Subject) -> None:
        one.around = around

    return change


def _within(made: Callable[[], Any]) -> Change:
    def change(one: Subject) -> None:
        one.around = made

    return change


def _called(*args: Any, **kwargs: Any) -> Change:
    def change(one: Subject) -> None:
        one.args, one.kwargs = args, kwargs

    return change


def _with(change: Callable[[Any], Any]) -> Change:
    return lambda one: change(one) and None


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


def _hooked(one: Subject) -> None:
    one.block.register_forward_hook(lambda module, args, output: output + 1)


def _hooked_before(one: Subject) -> None:
    one.block.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


@contextmanager
def _global_hook() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        yield
    finally:
        handle.remove()


def _untied(one: Subject) -> None:
    one.model.second.weight = nn.Parameter(one.model.second.weight.detach().clone())


def _cell(one: Subject) -> None:
    cell = part("helper").plus.__closure__[0]
    before = cell.cell_contents
    cell.cell_contents = 0.75

    @contextmanager
    def around() -> Iterator[None]:
        try:
            yield
        finally:
            cell.cell_contents = before

    one.around = around


def _nested(one: Subject) -> None:
    one.monkeypatch.setitem(part("helper").FLAGS["nested"], "by", 4.0)


def _appended(one: Subject) -> None:
    one.set(part("helper"), "SIZES", [1, 2, 3])


def _in_table(one: Subject) -> None:
    one.monkeypatch.setitem(part("helper").REGISTRY, "relu", torch.sigmoid)


def _content(one: Subject) -> None:
    one.set(part("helper"), "TABLE", torch.tensor([1.0, 2.0, 3.0, 5.0]))


def _buffer_kept(one: Subject) -> None:
    one.block.register_buffer("mask", one.block.mask.clone(), persistent=True)


def _scaled(x: torch.Tensor, by: float = 1.5, *, more: float = 0.5) -> torch.Tensor:
    return x * by + more


def _defaults(one: Subject) -> None:
    one.set(part("helper").scaled, "__defaults__", (2.5,))


def _named_defaults(one: Subject) -> None:
    one.set(part("helper").scaled, "__kwdefaults__", {"more": 0.75})


def _own_method(one: Subject) -> None:
    one.block.halved = lambda x: x / 3


def _class_of_object(one: Subject) -> None:
    one.set(part("helper").Policy, "offset", 2.0)


def _method_of_object(one: Subject) -> None:
    one.set(part("helper").Policy, "apply", lambda self, x: x - self.offset)


def _object_attribute(one: Subject) -> None:
    part("helper").policy.offset = 5.0
    one.around = lambda: _deleted(part("helper").policy, "offset")


@contextmanager
def _deleted(owner: Any, name: str) -> Iterator[None]:
    try:
        yield
    finally:
        delattr(owner, name)


def _new_forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.lin(x)


def _halved(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


def _turned(one: Subject) -> None:
    one.block.lin.weight = nn.Parameter(one.block.lin.weight.detach().t())


def _order(one: Subject) -> None:
    first = one.model._modules.pop("first")
    one.model._modules["first"] = first


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * 2


@contextmanager
def _strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="of no one")
        yield


def _set_deterministic(value: bool) -> None:
    torch.use_deterministic_algorithms(value)


class Added(nn.Module):
    """Another class with a method that the block's has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


MISS: dict[str, tuple[Change, str, bool]] = {
    # what changes, what the reason says of it, whether the key is another
    "the model's file": (lambda one: one.edited("model", "made.relu()", "made.tanh()"), "forward", False),
    "the model's file, what runs": (
        lambda one: one.edited("model", "* n\n", "* n + 1\n"),
        "forward",
        True,
    ),
    "a helper's file": (lambda one: one.edited("helper", "GAIN = 2.0", "GAIN = 4.0"), "GAIN", True),
    "a file two imports away": (lambda one: one.edited("deeper", "x * SLOPE", "x - SLOPE"), "bend", True),
    "a number two imports away": (lambda one: one.edited("deeper", "SLOPE = 0.5", "SLOPE = 0.75"), "SLOPE", True),
    "a class attribute in a file": (lambda one: one.edited("model", "factor = 3.0", "factor = 4.0"), "", True),
    "a default in a file": (lambda one: one.edited("helper", "by=1.5", "by=1.75"), "", True),
    "a new method in a file": (
        lambda one: one.edited("model", "class Square(nn.Module):", "class Square(nn.Module):\n    extra = 1\n"),
        "",
        False,
    ),
    "a method of the class": (
        lambda one: one.set(type(one.block), "forward", _new_forward),
        "Block",
        True,
    ),
    "a method of the instance": (
        lambda one: setattr(one.block, "forward", functools.partial(_new_forward, one.block)),
        "forward",
        True,
    ),
    "a static method of the instance": (_own_method, "halved", True),
    "a static method": (lambda one: one.set(type(one.block), "halved", staticmethod(lambda x: x / 4)), "Block", True),
    "a class method": (lambda one: one.set(type(one.block), "doubled", classmethod(lambda cls, x: x)), "Block", True),
    "a property": (lambda one: one.set(type(one.block), "slope", property(lambda self: 1.5)), "Block", True),
    "a class attribute": (lambda one: one.set(type(one.block), "factor", 5.0), "factor: 3.0 -> 5.0", True),
    "a class attribute of the instance": (_another("factor", 6.0), "factor: nothing -> 6.0", True),
    "an attribute of a base class": (lambda one: one.set(nn.Module, "factor", 6.0), "factor", False),
    "a function": (_in_helper("scaled", _scaled), "scaled", True),
    "a function two imports away": (lambda one: one.set(part("deeper"), "bend", torch.neg), "bend", True),
    "a default argument": (_defaults, "scaled", True),
    "a named default argument": (_named_defaults, "scaled", True),
    "a closure": (_cell, "plus", True),
    "a global number": (_in_helper("GAIN", 3.0), "GAIN: 2.0 -> 3.0", True),
    "a global number two imports away": (
        lambda one: one.set(part("deeper"), "SLOPE", 0.25),
        "SLOPE: 0.5 -> 0.25",
        True,
    ),
    "a global of another type": (_in_helper("GAIN", 2), "GAIN", True),
    "a global container": (_nested, "FLAGS", True),
    "a global list": (_appended, "SIZES", True),
    "a global tensor": (_content, "TABLE", True),
    "a function in a table": (_in_table, "REGISTRY", True),
    "a builtin of a module": (lambda one: one.set(part("model"), "len", lambda _: 9), "len", True),
    "a class attribute of a global object": (_class_of_object, "offset", True),
    "a method of a global object": (_method_of_object, "Policy", True),
    "an attribute of a global object": (_object_attribute, "policy", True),
    "a cached answer": (_in_helper("mode", functools.lru_cache(lambda: "odd")), "mode", True),
    "an environment variable": (lambda one: one.monkeypatch.setenv("TINY_MODE", "cubed"), "TINY_MODE", True),
    "a function of torch": (
        lambda one: one.set(torch.nn.functional, "linear", lambda x, w, b: x @ w + b),
        "linear",
        True,
    ),
    "a method of tensors": (lambda one: one.set(torch.Tensor, "relu", lambda self: self), "relu", False),
    "a layer of torch": (lambda one: one.set(nn.Linear, "forward", lambda self, x: x), "forward", True),
    "a function of torch in another's place": (
        lambda one: one.set(torch.nn.functional, "dropout", torch.nn.functional.alpha_dropout),
        "functions",
        True,
    ),
    "a layer of torch in another's place": (
        lambda one: one.set(nn.Linear, "forward", nn.Identity.forward),
        "forward",
        True,
    ),
    "a partial in a layer of torch": (
        lambda one: one.set(nn.Dropout, "forward", functools.partialmethod(_halved)),
        "dropout",
        True,
    ),
    "a hook": (_hooked, "first", True),
    "a hook before": (_hooked_before, "first", True),
    "a hook of all modules": (_within(_global_hook), "hooks", False),
    "a dropout rate": (lambda one: setattr(one.block.dropout, "p", 0.2), "first.dropout.p: 0.1 -> 0.2", True),
    "a nested configuration value": (lambda one: setattr(one.model.config.inner, "p", 0.2), "p: 0.1 -> 0.2", True),
    "an enum": (lambda one: setattr(one.block, "kind", part("model").Kind.TWO), "kind", True),
    "a text": (_another("name", "tanh"), "first.name: relu -> tanh", True),
    "a tuple": (_another("steps", (1, 3.0)), "steps", True),
    "a number of another type": (_another("steps", (1, 2)), "steps", True),
    "a list": (lambda one: one.block.items.append(3.0), "items", True),
    "a dictionary": (lambda one: one.block.table.update(a=5.0), "table", True),
    "a partial": (_another("part", functools.partial(torch.add, alpha=3)), "part", True),
    "a new attribute": (_another("extra", 1), "extra: nothing -> 1", False),
    "values of a buffer that is not saved": (lambda one: one.block.mask.add_(1), "mask", True),
    "a buffer that is saved now": (_buffer_kept, "mask", True),
    "an index kept as an attribute": (lambda one: one.block.index.copy_(torch.arange(4)), "index", True),
    "weights untied": (_untied, "weight", True),
    "a weight's layout": (_turned, "weight", True),
    "a weight's dtype": (lambda one: one.model.double(), "float64", True),
    "a weight that needs no gradient": (lambda one: one.block.lin.weight.requires_grad_(False), "weight", True),
    "a parametrization": (
        lambda one: parametrize.register_parametrization(one.model.second, "bias", Doubled()),
        "",
        True,
    ),
    "weight norm": (lambda one: parametrizations.weight_norm(one.model.second), "", True),
    "train mode": (lambda one: one.model.train(), "training: False -> True", True),
    "train mode of one module": (lambda one: one.block.dropout.train(), "dropout.training", True),
    "another activation": (lambda one: setattr(one.block, "act", part("model").Cube()), "act", True),
    "an activation of another module": (lambda one: setattr(one.block, "act", Added()), "act", True),
    "another order of modules": (_order, "modules", True),
    "a module more": (lambda one: one.model.add_module("third", nn.Linear(2, 2)), "third", True),
    "an input's shape": (_called(X[:2]), "inputs", True),
    "an input's dtype": (_called(X.double()), "inputs", True),
    "an input's layout": (_called(X.t().contiguous().t()), "inputs", True),
    "an input that needs a gradient": (_called(X.clone().requires_grad_()), "inputs", True),
    "an integer": (_called(X, 3), "inputs", True),
    "an integer that is no longer one": (_called(X, 2.0), "inputs", True),
    "a flag": (_called(X, flag=True), "inputs", True),
    "a named argument": (_called(x=X), "inputs", True),
    "nested arguments": (_called(X, pair=(X, X + 1)), "inputs", True),
    "arguments that share memory": (_called(X, pair=(X, 2.0)), "inputs", True),
    "a size that varies": (
        lambda one: setattr(one, "dynamic_shapes", {"x": {0: torch.export.Dim("n")}}),
        "dynamic",
        True,
    ),
    "the default dtype": (_state(torch.set_default_dtype, torch.float64, torch.float32), "process", False),
    "autocast": (_within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)), "process", True),
    "no gradients": (_within(torch.no_grad), "is_grad_enabled", False),
    "inference mode": (_within(torch.inference_mode), "is_", False),
    "a kernel of attention": (_state(torch.backends.cuda.enable_flash_sdp, False, True), "process", False),
    "determinism": (_state(_set_deterministic, True, False), "process", False),
    "the precision of products": (_state(torch.set_float32_matmul_precision, "high", "highest"), "precision", False),
    "the fast path of attention": (_state(torch.backends.mha.set_fastpath_enabled, False, True), "fastpath", False),
    "errors of NumPy": (_within(lambda: np.errstate(all="raise")), "numbers", False),
    "digits of decimals": (_within(lambda: decimal.localcontext(prec=5)), "numbers", False),
    "warnings that are errors": (_within(_strict), "warnings", False),
    "an enum's value": (lambda one: one.set(part("model").Kind.ONE, "_value_", 7), "kind", False),
    "an array that cannot be written": (lambda one: one.block.array.setflags(write=False), "array", False),
    "memory that a tensor shares": (lambda one: setattr(one.block, "view", one.block.view.clone()), "view", False),
    "a method of tensors in another's place": (
        lambda one: one.set(torch.Tensor, "relu", torch.Tensor.tanh),
        "relu",
        False,
    ),
    "a variable for torch": (lambda one: one.monkeypatch.setenv("TORCH_SOMETHING", "1"), "environment", False),
}
"""What must be noticed: by what name, how, a word of the reason, and whether the slow way's key is another too."""


def _retrained(one: Subject) -> None:
    with torch.no_grad():
        for weight in one.model.parameters():
            weight.mul_(1.5)


def _moved(one: Subject) -> None:
    folder = one.package.parent.parent / "elsewhere"
    folder.mkdir()
    one.package = one.package.rename(folder / one.package.name)
    one.loaded(one.package)


def _touched(one: Subject) -> None:
    for path in one.package.glob("*.py"):
        path.touch()
    one.loaded(one.package)


def _rewritten(one: Subject) -> None:
    for path in one.package.glob("*.py"):
        text = path.read_text()
        path.unlink()
        path.write_text(text)
    one.loaded(one.package)


def _beside(one: Subject) -> None:
    (one.package / "other.py").write_text("# a comment\n")
    one.loaded(one.package)


def _backward(one: Subject) -> None:
    one.model(X).sum().backward()


HIT: dict[str, Change] = {
    "nothing": lambda _: None,
    "new weights": _retrained,
    "another instance": lambda one: setattr(one, "model", tiny()),
    "a copy": lambda one: setattr(one, "model", copy.deepcopy(one.model)),
    "weights from a file": lambda one: one.model.load_state_dict(tiny().state_dict()) and None,
    "values of a saved buffer": lambda one: one.block.mean.fill_(1) is None and None,
    "gradients": _backward,
    "other inputs": _called(X + 1),
    "an input that lies elsewhere": _called(X.clone()),
    "a new process": lambda one: one.loaded(one.package),
    "another folder": lambda one: one.monkeypatch.chdir(one.package),
    "another path to the package": _moved,
    "a link to the package": lambda one: (one.package.parent / "link").symlink_to(one.package.parent),
    "times of files": _touched,
    "files written again": _rewritten,
    "a file that does not run": _beside,
    "a global that is not read": lambda one: one.set(part("deeper"), "UNREAD", 8),
    "a function that is not read": lambda one: one.set(part("helper"), "unused", torch.neg),
    "a variable that is not read": lambda one: one.monkeypatch.setenv("SOMETHING", "1"),
    "a seed": lambda _: torch.manual_seed(9) and None,
    "another module beside": lambda one: load(one.package) and setattr(one, "model", tiny()),
    "a call in between": lambda one: one.model(X) is None and None,
}
"""What must not matter."""

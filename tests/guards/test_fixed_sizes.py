"""Sizes that torch fixed although ``Dim.AUTO`` was given: they are in the report and in the errors for other sizes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.direct.stored import install_stored
from tests.guards.cases import Calls
from trtcache.errors import ExportError, GuardError, InputError
from trtcache_cli.build import _document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import trtcache
    from tests.conftest import RunPython


class Fixing(nn.Module):
    """A layer that fixes the last size of ``x``, and branches that fix the first of ``y`` and the number ``n``."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, *, y: Mapping[str, torch.Tensor], n: int = 3) -> torch.Tensor:
        z = self.linear(x)
        if y["a"].shape[0] == 5:
            z = z + (1 if n == 3 else 2)
        return z + y["a"].sum()


X = torch.ones(3, 8)
AUTO = Dim.AUTO
FORMS: dict[str, Any] = {
    "tuple": ((AUTO, AUTO), {"a": {0: AUTO, 1: AUTO}}, AUTO),
    "dict": {"x": {0: AUTO, 1: AUTO}, "y": {"a": (AUTO, AUTO)}, "n": AUTO},
}


@pytest.mark.parametrize("form", FORMS)
def test_sizes_that_torch_fixed_are_reported(compiled: Callable[..., trtcache.CompiledModule], form: str) -> None:
    """With the place in the model or in torch, on a build and on a hit, and in ``--json``."""
    model, y = Fixing().eval(), {"a": torch.ones(5, 1)}
    for route in ("lowered", "alias"):
        module = compiled(model, (X,), {"y": y, "n": 3}, dynamic_shapes=FORMS[form])
        report = module.report
        assert report.route == route
        found = {(one.argument, one.dimension): one for one in report.fixed_sizes}
        assert {place: one.size for place, one in found.items()} == {
            ("argument x", 1): 8,
            ("argument y['a']", 0): 5,
            ("argument y['a']", 1): 1,
            ("argument n", None): 3,
        }
        first = found["argument x", 1]
        assert "at torch/" in first.why
        assert "test_fixed_sizes.py:" in found["argument y['a']", 0].why
        assert "test_fixed_sizes.py:" in found["argument n", None].why
        assert str(found["argument y['a']", 1]).endswith("torch fixed it since the example's is 1")
        assert f"  fixed: {first}" in str(report)
        document = {"argument": "argument x", "dimension": 1, "size": 8, "why": first.why}
        assert document in _document(report, None)["fixed_sizes"]
        torch.testing.assert_close(module(X[:2], y=y), model(X[:2], y=y))
        with pytest.raises(InputError, match=r"argument x: .*; size 1 of argument x is 8: Dim\.AUTO was given"):
            module(torch.ones(3, 9), y=y)
        with pytest.raises(InputError, match=r"size 0 of argument y\['a'\] is 5: Dim\.AUTO was given"):
            module(X, y={"a": torch.ones(6, 1)})
        with pytest.raises(InputError, match=r"argument n is 3: Dim\.AUTO was given, and torch fixed it"):
            module(X, y=y, n=4)


def test_a_hit_of_direct_mode_reports_them_without_the_reason(run_python: RunPython, tmp_path: Path) -> None:
    """The sizes are known from the arguments and the entry; nothing is exported."""
    site = install_stored(tmp_path / "site")
    code = f"""
    import torch, trtcache
    from torch.export import Dim
    model, x, sizes = torch.nn.Linear(8, 4).eval(), torch.ones(3, 8), {{0: Dim.AUTO, 1: Dim.AUTO}}
    for _ in range(2):
        options = dict(backend="stored", cache={str(tmp_path / "cache")!r}, direct="on")
        module = trtcache.compile(model, (x,), dynamic_shapes=(sizes,), **options)
        print(module.report.route, *module.report.fixed_sizes, sep="|")
    """
    done = run_python(code, PYTHONPATH=f"{site}:.")
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = done.stdout.splitlines()[-2:]
    text = "size 1 of argument input is 8: Dim.AUTO was given, and torch fixed it"
    assert first.startswith(f"lowered|{text} at torch/")
    assert second == f"direct|{text}"


class Open(nn.Module):
    """Arguments of several kinds, and nothing that fixes a size."""

    def forward(self, x: torch.Tensor, *more: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x.sum() + sum(one.sum() for one in (*more, a, b))


def test_sizes_that_vary_or_were_fixed_by_the_caller_are_not_reported(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """``Dim.STATIC``, numbers and None are the caller's own; arguments may be variadic, and shapes a collection."""
    args, named = (torch.ones(3, 4), torch.ones(5, 4), torch.ones(1, 6)), {"a": torch.ones(1), "b": torch.ones(7, 2)}
    shapes = {
        "x": {0: AUTO, 1: Dim.STATIC},
        "more": ({0: Dim("n")}, {0: AUTO, 1: 6}),
        "a": {0: AUTO},
        "b": None,
    }
    module = compiled(Open().eval(), args, named, dynamic_shapes=shapes)
    found = [(one.argument, one.dimension, one.size) for one in module.report.fixed_sizes]
    assert found == [("argument more[1]", 0, 1), ("argument a", 0, 1)]
    collection = torch.export.ShapesCollection()
    x = torch.ones(1, 4)
    collection[x] = {0: AUTO, 1: AUTO}
    module = compiled(Open().eval(), (x,), named, dynamic_shapes=collection)
    assert [(one.dimension, one.size) for one in module.report.fixed_sizes] == [(0, 1)]
    assert compiled(Open().eval(), args, named).report.fixed_sizes == ()


TEXTS: dict[str, Callable[[torch.Tensor], bool]] = {
    "str": lambda x: str(x.shape[0]) == "3",
    "repr": lambda x: repr(x.shape[0]) in {"3": 1},
    "format": lambda x: f"{x.shape[0]}" == "3",
    "percent": lambda x: "%s" % x.shape[0] == "3",  # noqa: UP031  # models have that
    "shape": lambda x: str(x.shape) == "torch.Size([3, 8])",
    "map": lambda x: ",".join(map(str, x.shape)) == "3,8",
    "float": lambda x: str(x.shape[0] / 2) == "1.5",
    "bool": lambda x: str(x.shape[0] == 3) == "True",
    "message": lambda x: logging.LogRecord("", 0, "", 0, "%s", (x.shape[0],), None).getMessage() == "3",
}


class Chooses(nn.Module):
    """Chooses a factor by the text of a size."""

    def __init__(self, text: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.text = text

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x * (2 if self.text(x) else 3)


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_size_makes_it_constant(compiled: Callable[..., trtcache.CompiledModule], text: str) -> None:
    """It is that of the example's number, and no other size is answered by the program."""
    model = Chooses(TEXTS[text])
    module = compiled(model, (X,), dynamic_shapes=({0: AUTO},), on_guard="error")
    torch.testing.assert_close(module(X), model(X))
    with pytest.raises((InputError, GuardError)) as caught:
        module(torch.ones(5, 8))
    assert isinstance(caught.value, GuardError) or "torch fixed it at" in str(caught.value)
    assert "logging" not in str(caught.value)
    with pytest.raises(ExportError, match=r"Constraints violated \(n\)"):
        compiled(model, (X,), dynamic_shapes=({0: Dim("n")},))


def _assert(condition: Any, message: str) -> None:
    """Look at a message, unlike torch's function of this name."""
    assert condition
    ASSERTED.append(message)


ASSERTED: list[str] = []


class Asserts(nn.Module):
    """Checks the sizes of its input in two ways."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Check them."""
        torch._assert(x.shape[1] == 8, f"expected 8, got {x.shape[1]} of {x.shape}")
        torch._assert(
            x.shape[0] % 1 == 0,
            f"{x.shape[0]} is not divisible, {x.shape[0] * 2} neither",
        )
        return x * 2


class AssertsOtherwise(nn.Module):
    """Calls a function of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Check a size."""
        _assert(x.shape[1] == 8, f"{x.shape[0]}")
        return x * 2


class AssertsLocally(nn.Module):
    """Calls a function that has torch's name here."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Check a size."""
        torch = OTHER  # it is called
        torch._assert(x.shape[1] == 8, f"{x.shape[0]}")
        return x * 2


class AssertsWithText(nn.Module):
    """Looks something up by a text in a message."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Check a size."""
        torch._assert(x.shape[1] == 8, f"{ASSERTED.append(str(x.shape[0]))}")
        return x * 2


OTHER = SimpleNamespace(_assert=_assert)


def test_messages_of_asserts_fix_no_size(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Those of ``torch._assert``, as in timm's models; other functions can read them."""
    module = compiled(Asserts(), (X,), dynamic_shapes=({0: Dim("n")},))
    torch.testing.assert_close(module(torch.ones(7, 8)), torch.ones(7, 8) * 2)
    for model in (AssertsOtherwise(), AssertsLocally(), AssertsWithText()):
        module = compiled(model, (X,), dynamic_shapes=({0: AUTO},))
        assert [one.dimension for one in module.report.fixed_sizes] == [0], model


def test_texts_of_torchs_own_and_of_other_threads_fix_no_size(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """An error message of torch's, and an export in another thread."""

    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._check(x.shape[0] < 100, lambda: f"{x.shape[0]} is too large")
            thread = threading.Thread(target=texts.append, args=(x.shape[0],))
            thread.start()
            thread.join()
            other = threading.Thread(target=lambda: texts.append(str(texts[0])))
            other.start()
            other.join()
            return x * 2

    texts: list[Any] = []
    module = compiled(Asks(), (X,), dynamic_shapes=({0: AUTO},))
    assert not module.report.fixed_sizes
    assert "3" not in texts


ROUNDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a multiple": lambda x: round(x.shape[0] * 7, -1),
    "a sum": lambda x: round(x.shape[0] + 14, -1),
    "a quotient": lambda x: round(x.numel() * 10 // 3, -2),
    "by name": lambda x: round(x.shape[0] * 7, ndigits=-1),
    "by method": lambda x: (x.shape[0] * 7).__round__(-1),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_size_rounded_to_tens_becomes_constant(compiled: Callable[..., trtcache.CompiledModule], name: str) -> None:
    """``SymInt.__round__`` ignores the number of digits (torch 2.13)."""
    model = Calls(lambda x: x * ROUNDS[name](x))
    shapes: Any = (({0: AUTO},),)
    module = compiled(model, (torch.ones(3, 8),), dynamic_shapes=shapes, on_guard="error")
    torch.testing.assert_close(module(torch.ones(3, 8)), model(torch.ones(3, 8)))
    if name == "a quotient":  # which torch does not solve for the size
        assert len(module.guards) == 1
    else:
        assert [(one.dimension, one.size) for one in module.report.fixed_sizes] == [(0, 3)]
    for rows in (2, 4, 5):
        with pytest.raises((InputError, GuardError)):
            module(torch.ones(rows, 8))
    with pytest.raises(ExportError):
        compiled(model, (torch.ones(3, 8),), dynamic_shapes=(({0: Dim("rows")},),))


def test_a_number_rounded_to_tens_is_refused(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """One that is read from a tensor has no value while the model is exported."""
    with pytest.raises(ExportError, match=r"round"):
        compiled(Calls(lambda x: x * round(x[0, 0].int().item(), -1)), (torch.ones(3, 8),))


@pytest.mark.parametrize("digits", [(), (0,), (2,)])
def test_a_size_rounded_to_no_digit_varies(
    compiled: Callable[..., trtcache.CompiledModule], digits: tuple[int, ...]
) -> None:
    """It is the size itself."""
    model = Calls(lambda x: x * round(x.shape[0] * 7, *digits))
    module = compiled(model, (torch.ones(3, 8),), dynamic_shapes=(({0: AUTO},),))
    for rows in (2, 3, 7):
        torch.testing.assert_close(module(torch.ones(rows, 8)), model(torch.ones(rows, 8)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * round(x[0, 0].item() * 0.55, 1),
        lambda x: x * round(x.shape[0] * 0.55, 1),
        lambda x: x * round(x.shape[0] / 7, -1),
        lambda x: x + round(x[0, 0].item(), ndigits=2),
    ],
)
@pytest.mark.parametrize("is_exported", [False, True])
def test_a_float_rounded_to_digits_is_refused(
    compiled: Callable[..., trtcache.CompiledModule], function: Callable[..., Any], is_exported: bool
) -> None:
    """Python rounds by the decimal expansion of a float, and C++ by its product with a power of ten."""
    model, x, shapes = Calls(function), torch.ones(3, 8), (({0: AUTO},),)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)
    with pytest.raises(ExportError, match="round"):
        _ = compiled(program) if is_exported else compiled(model, (x,), dynamic_shapes=shapes)


@pytest.mark.parametrize("digits", [(), (0,), (None,)])
def test_a_float_rounded_to_no_digit_is_allowed(
    compiled: Callable[..., trtcache.CompiledModule], digits: tuple[Any, ...]
) -> None:
    """The nearest integer, and the even one of two, is the same everywhere."""
    model = Calls(lambda x: x * round(x.shape[0] * 0.5, *digits))
    module = compiled(model, (torch.ones(3, 8),), dynamic_shapes=(({0: AUTO},),))
    for rows in (2, 3, 5, 7):
        torch.testing.assert_close(module(torch.ones(rows, 8)), model(torch.ones(rows, 8)))

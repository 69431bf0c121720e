"""Digests of the code that a model runs: what they distinguish, and what is left out."""

from __future__ import annotations

import cProfile
import functools
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from trtcache.errors import ExportError
from trtcache.frontends.direct import NotComparableError
from trtcache.frontends.direct import manifest as manifests
from trtcache.frontends.direct.executed_code import ExecutedCode, digest
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import CodeType

X = torch.arange(12.0).reshape(3, 4)


def code_of(source: str, file: str = "model.py") -> CodeType:
    """Return the code of the function ``f`` in some source."""
    space: dict[str, Any] = {}
    exec(compile(source, file, "exec"), space)  # noqa: S102  # the test's own
    code: CodeType = space["f"].__code__
    return code


FUNCTION = "def f(x, n=2):\n    return x * n\n"
EQUAL = {
    "a comment": "# A comment\ndef f(x, n=2):\n    # Another\n\n    return x * n\n",
    "an annotation": "def f(x: int, n: int = 2) -> int:\n    return x * n\n",
    "a default, which is no part of the code": "def f(x, n=3):\n    return x * n\n",
    "a class around it": "class A:\n    def f(x, n=2):\n        return x * n\nf = A.f\n",
}
DIFFERENT = {
    "an operator": "def f(x, n=2):\n    return x + n\n",
    "the order of operands": "def f(x, n=2):\n    return n * x\n",
    "a name of an argument": "def f(x, m=2):\n    return x * m\n",
    "its own name": "def g(x, n=2):\n    return x * n\nf = g\n",
    "an argument that is only named": "def f(x, *, n=2):\n    return x * n\n",
    "a constant that is equal": "def f(x, n=2):\n    return x * n * 1.0\n",
    "a docstring": "def f(x, n=2):\n    '''Text.'''\n    return x * n\n",
    "an error that is caught": "def f(x, n=2):\n    try:\n        return x * n\n    except OSError:\n        raise\n",
}


@pytest.mark.parametrize("what", EQUAL)
def test_what_code_does_has_one_digest(what: str) -> None:
    """Whatever the file and the lines are."""
    assert digest(code_of(EQUAL[what], "another/file.py")) == digest(code_of(FUNCTION))


@pytest.mark.parametrize("what", DIFFERENT)
def test_other_code_has_another_digest(what: str) -> None:
    """If its instructions, names or constants differ."""
    assert digest(code_of(DIFFERENT[what])) != digest(code_of(FUNCTION))


CONSTANTS = ["1", "True", "1.0", "1j", "'1'", "b'1'", "None", "...", "0.0", "-0.0", "(1, 2)", "(1, 2.0)", "(1, (2,))"]


def test_constants_of_other_types_have_other_digests() -> None:
    """Python counts 1, True and 1.0 as equal, and 0.0 and -0.0."""
    assert len({digest(code_of(f"def f():\n    return {one}\n")) for one in CONSTANTS}) == len(CONSTANTS)


def test_functions_inside_are_a_part_of_code() -> None:
    """Also those in two levels."""
    source = "def f(x):\n    def g():\n        return lambda y: y * {}\n    return g()(x)\n"
    assert digest(code_of(source.format(2))) != digest(code_of(source.format(3)))


def test_a_digest_is_that_of_every_process() -> None:
    """The order of a set among the constants is that of hashes, which are random numbers."""
    source = "def f(x):\n    return x in {'a', 'b', 'c', 'd', 2, 3.5, (1, 'e')}\n"
    script = f"from tests.direct.test_executed_code import *\nprint(digest(code_of({source!r})))"
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1
    assert re.fullmatch(r"[0-9a-f]{32}\n", found.pop())


def collected(function: Callable[..., Any], *args: Any) -> set[str]:
    """Return the names of the functions that a call runs."""
    code = ExecutedCode()
    with code.collect():
        function(*args)
    code.require_complete()
    return {one.co_name for one in code.by_digest.values()}


def helper(x: Any) -> Any:
    """Return the argument."""
    return x


def numbers() -> Iterator[int]:
    """Yield a number."""
    yield helper(1)


@functools.lru_cache
def kept() -> int:
    """Return a number that is computed once."""
    return 3


class Number:
    """Has a property."""

    @property
    def value(self) -> int:
        """A number."""
        return 2


KNOWN = {"__init__", "_wrapped_call_impl", "compile"}
"""Of ``Linear`` and ``re``."""


def test_all_functions_that_run_are_collected() -> None:
    """Generators, properties, and what libraries call; of torch and the library only the functions that others call."""

    def run() -> Any:
        list(map(helper, numbers()))
        sorted([2, 1], key=lambda x: -x)
        return (
            functools.reduce(lambda x, y: x + y, [1, Number().value]),
            re.compile("a|b(c)"),
            torch.nn.Linear(2, 2)(X[:, :2]),
        )

    assert collected(run) == {"run", "helper", "numbers", "value", "<lambda>"} | KNOWN
    assert collected(kept) == {"kept"}
    assert collected(kept) == set()


def test_functions_are_collected_again() -> None:
    """In each block, though what runs was reported before."""
    assert [collected(helper, 1) for _ in range(3)] == [{"helper"}] * 3


def test_functions_of_other_threads_are_left_out() -> None:
    """They run by chance."""
    ends, runs = threading.Event(), threading.Event()

    def elsewhere() -> None:
        while not ends.is_set():
            kept.cache_clear()
            kept()
            runs.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        assert collected(lambda: [runs.clear(), runs.wait(60)]) == {"<lambda>", "clear", "wait"}
    finally:
        ends.set()
        thread.join()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring is for several tools")
def test_a_profiler_is_kept() -> None:
    """Nothing is collected beside it, and it is not replaced."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with pytest.raises(NotComparableError, match="a profiler is active"):
            collected(helper, 1)
        assert sys.getprofile() is profiler
    finally:
        profiler.disable()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring is for several tools")
@pytest.mark.parametrize("profile", [None, lambda *_: None])
def test_code_that_starts_or_ends_a_profiler_is_not_compared(profile: Any) -> None:
    """What runs after that is not collected."""
    with pytest.raises(NotComparableError, match="starts or ends a profiler"):
        collected(sys.setprofile, profile)
    assert sys.getprofile() is None


def test_code_does_not_see_that_it_is_collected() -> None:
    """It could ask, and an export is not collected each time."""
    functions = sys.getprofile, sys.gettrace
    collected(lambda: check(sys.getprofile() is None and sys.gettrace() is None))
    assert (sys.getprofile, sys.gettrace) == functions


def check(condition: bool) -> None:
    """Check a condition."""
    assert condition


def test_a_trace_function_is_no_obstacle() -> None:
    """A debugger has one, and a measurement of coverage."""
    calls: list[str] = []

    def trace(frame: Any, _event: str, _value: Any) -> None:
        calls.append(frame.f_code.co_name)

    sys.settrace(trace)
    try:
        assert collected(helper, 1) >= {"helper"}
        assert sys.gettrace() is trace
    finally:
        sys.settrace(None)
    assert "helper" in calls


def traces() -> None:
    """Set and remove a trace function."""
    sys.settrace(lambda *_: None)
    sys.settrace(None)


def profiles() -> None:
    """Set a profile function; Python 3.11 has one at a time."""
    sys.setprofile(lambda *_: None)
    sys.setprofile(None)


@pytest.mark.parametrize("function", [traces, profiles])
def test_code_that_has_functions_called_unseen_is_not_compared(function: Callable[[], None]) -> None:
    """Python does not report what trace and profile functions call."""
    functions = sys.settrace, sys.setprofile
    with pytest.raises(NotComparableError, match=r"forward calls sys\.|starts or ends a profiler"):
        collected(function)
    assert (sys.settrace, sys.setprofile) == functions
    assert collected(sys.settrace, None) == set()


def test_an_error_ends_the_collection() -> None:
    """The error is that of the function."""
    with pytest.raises(ZeroDivisionError):
        collected(lambda: 1 / 0)
    assert sys.getprofile() is None
    assert collected(helper, 1) == {"helper"}


class Model(nn.Module):
    """Multiplies as its ``factor`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        return self.lin(x) * self.factor()

    def factor(self) -> int:
        """Return 2."""
        return 2


def outcome(model: nn.Module, cache: Path, **options: Any) -> str:
    """Compile with direct mode, and return what came of it."""
    return trtcache.compile(model, (X,), backend="interpreter", direct="on", cache=cache, **options).report.direct


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_changed_code_is_a_miss_though_the_operations_are_the_same(
    is_dynamic: bool, interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then both the old and the new code hit."""
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("n", max=64)},)} if is_dynamic else {}
    torch.manual_seed(0)
    model = Model().eval()
    assert outcome(model, tmp_path, **shapes).startswith("miss: ")
    assert outcome(model, tmp_path, **shapes) == "hit"
    with monkeypatch.context() as patched:
        patched.setattr(Model, "factor", lambda _: 1 + int(torch.overrides._get_current_function_mode() is not None))
        why = "miss: code has changed, or did not run before: "
        changed = f"{why}test_changed_code_is_a_miss_though_the_operations_are_the_same.<locals>.<lambda> of"
        assert outcome(model, tmp_path, **shapes) == f"{changed} test_executed_code.py"
        assert outcome(model, tmp_path, **shapes) == "hit"
    assert outcome(model, tmp_path, **shapes) == "hit"


def test_versions_of_code_share_a_manifest(interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest eight of them: the trace is stored once, and read once at a hit."""
    model = Model().eval()
    factors = [eval(f"lambda _: 2 + 0 * len({n * 'x'!r})") for n in range(10)]  # noqa: S307  # the test's own
    for factor in factors:
        monkeypatch.setattr(Model, "factor", factor)
        assert outcome(model, tmp_path).startswith("miss: ")
        assert outcome(model, tmp_path) == "hit"
    store = DiskStore.open(tmp_path)
    (header,) = (one for one in map(store.header, (one.digest for one in store.scan())) if one.kind == manifests.KIND)
    entry = store.get(header.key)
    assert entry is not None
    (manifest,) = manifests.read(bytes(entry.read(manifests.MEMBER)))
    assert len(manifest.versions) == 8
    monkeypatch.setattr(Model, "factor", factors[2])
    assert outcome(model, tmp_path) == "hit"
    monkeypatch.setattr(Model, "factor", factors[1])
    assert outcome(model, tmp_path).startswith("miss: ")


def test_code_that_only_runs_the_first_time_is_no_difference(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches are filled in the first process by the export, in another by the replay, or before."""
    monkeypatch.setattr(Model, "factor", lambda _: kept() - 1)
    kept.cache_clear()
    model = Model().eval()
    assert outcome(model, tmp_path).startswith("miss: ")
    assert outcome(model, tmp_path) == "hit"
    kept.cache_clear()
    assert outcome(model, tmp_path) == "hit"


def test_work_for_another_thread_turns_it_off(interpreter: str, tmp_path: Path) -> None:
    """Nothing is collected there."""

    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with ThreadPoolExecutor(1) as pool:
                return x * pool.submit(helper, 2).result()

    for _ in range(2):
        assert outcome(Pooled(), tmp_path) == "off: forward gives work to another thread"


def test_the_fake_kernel_of_a_custom_operator_is_code(interpreter: str, tmp_path: Path) -> None:
    """An export has the sizes that it computes, and what it refuses."""

    @torch.library.custom_op("executed::head", mutates_args=())
    def head(x: torch.Tensor) -> torch.Tensor:
        return x[:, :most].clone()

    @head.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], most)

    class Head(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.executed.head(x) * 2

    most = 2
    options = {"settings": {"operator_versions": {"executed::head": "1"}}}
    assert outcome(Head(), tmp_path, **options).startswith("miss: ")
    assert outcome(Head(), tmp_path, **options) == "hit"
    most = 3
    missed = outcome(Head(), tmp_path, **options)
    assert missed.endswith("executed.head(input 0), with other values, sizes or structure")
    assert outcome(Head(), tmp_path, **options) == "hit"


def test_recursion_that_is_too_deep_for_an_export_is_no_hit(interpreter: str, tmp_path: Path) -> None:
    """An export has more frames than a call."""

    class Deep(nn.Module):
        depth = 10

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._multiply(x, self.depth)

        def _multiply(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            return self._multiply(x, depth - 1) if depth else x * 2

    assert outcome(Deep(), tmp_path).startswith("miss: ")
    assert outcome(Deep(), tmp_path) == "hit"
    model = Deep()
    model.depth = sys.getrecursionlimit() - len(list(_frames())) - 60  # enough for a call, and not for an export
    assert torch.equal(model(X), X * 2)
    with pytest.raises(ExportError, match="RecursionError"):
        outcome(model, tmp_path)


def _frames() -> Iterator[Any]:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back

"""The front door on an engine that interprets: every form of call, every kind of weight, and what is refused."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests import models
from tests.comparing import difference
from tests.models import Affine, Branching, Calls, Case, Keywords, retrained
from trtcache.backends import registry
from trtcache.errors import (
    BackendUnavailableError,
    ExportError,
    IncompatibleEngineError,
    NotAStoreError,
    SettingsError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(3, 4)


@pytest.fixture
def compiled(interpreter: str, engines: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and the session's cache."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, **{"backend": interpreter, "cache": engines, **kwargs})

    return compile_


@pytest.mark.parametrize("name", sorted(models.cases()))
def test_a_compiled_model_answers_every_call_as_the_model_does(
    compiled: Callable[..., trtcache.CompiledModule], name: str
) -> None:
    """Outputs have the model's structure, dtypes and values, however the arguments are given and laid out."""
    case: Case = models.cases()[name]
    module = compiled(case.model, case.args, case.kwargs)
    for args, kwargs in case.calls:
        assert difference(case.model(*args, **kwargs), module(*args, **kwargs)) is None


@pytest.mark.parametrize("name", sorted(models.cases()))
def test_a_refit_with_a_module_or_its_state_dict_makes_it_that_module(
    compiled: Callable[..., trtcache.CompiledModule], name: str
) -> None:
    """Refitted with other weights it equals the other model; refitted with the first ones, the first, bit by bit."""
    case: Case = models.cases()[name]
    other = retrained(copy.deepcopy(case.model))
    module = compiled(case.model, case.args, case.kwargs)
    first = module(*case.args, **case.kwargs)
    module.refit(other)
    for args, kwargs in case.calls:
        assert difference(other(*args, **kwargs), module(*args, **kwargs)) is None
    module.refit(case.model.state_dict())
    assert difference(first, module(*case.args, **case.kwargs), tolerance=0.0) is None


class LastStates(nn.Module):
    """Takes the last states of an LSTM apart, and puts them together again."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, bidirectional=True, proj_size=size)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _, (h, c) = self.lstm(x)
        return h, c, h[-1], torch.cat([c[-2], c[-1]], 1)


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("batch", [1, 2, torch.export.Dim("batch", min=2, max=9)])
def test_the_last_states_of_an_lstm_have_their_shapes(
    compiled: Callable[..., trtcache.CompiledModule], size: int, batch: Any
) -> None:
    """In torch 2.11 they had another dimension, and what is computed of them was wrong."""
    model = LastStates(size).eval()
    shapes = None if isinstance(batch, int) else ({1: batch},)
    module = compiled(model, (torch.randn(3, batch if isinstance(batch, int) else 2, 4),), dynamic_shapes=shapes)
    for number in [batch] if isinstance(batch, int) else [2, 5]:
        x = torch.randn(3, number, 4)
        assert difference(model(x), module(x)) is None


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_a_program_with_the_last_states_of_an_lstm_has_their_shapes(
    compiled: Callable[..., trtcache.CompiledModule],
) -> None:
    """Also if it was exported by torch 2.11, and wherever the other dimension would be."""
    model, x = LastStates(0).eval(), torch.randn(3, 2, 4)
    program = torch.export.export(model, (x,))
    assert difference(program.module()(x), compiled(program)(x)) is None


def test_the_type_of_an_output_is_kept(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A dataclass of transformers comes back as that dataclass, a named tuple as that named tuple."""
    for name in ("model_output", "namedtuple"):
        case = models.cases()[name]
        expected = case.model(*case.args)
        assert type(compiled(case.model, case.args)(*case.args)) is type(expected)


def test_a_program_of_torch_export_is_taken_as_it_is(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """An ExportedProgram has its own example inputs, and the key of its model."""
    model = Keywords()
    program = torch.export.export(model, (X,), {"scale": 3.0}, strict=False)
    module = compiled(program)
    assert difference(model(X, scale=3.0), module(X, scale=3.0)) is None
    key = trtcache.key(model, (X,), {"scale": 3.0}, backend="interpreter")
    assert module.report.partitions[0].key.digest == key.digest


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branching(), "data-dependent"),
        ("model.pt2", "give a torch.nn.Module"),
        (Calls(lambda lin, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))), "control flow"),
        (Calls(lambda lin, x: x.numpy()), "numpy"),
        # torch 2.11 has no words of its own for it.
        (Calls(lambda lin, x: {1, 2}), "output" if torch.__version__ >= "2.13" else "unhashable type: 'set'"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_exported_is_one_clear_error(
    compiled: Callable[..., trtcache.CompiledModule], model: Any, message: str
) -> None:
    """The error names the model and what is wrong with it."""
    with pytest.raises(ExportError, match=message):
        compiled(model, (X,))


def test_an_export_that_fails_leaves_no_hook(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Torch 2.11 leaves one for the buffers of all modules, with which direct mode was off."""
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    before = dict(hooks)
    with pytest.raises(ExportError):
        compiled(Branching(), (X,))
    assert hooks == before


def test_numbers_vary(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A number that varies is an input like another, and a size may be returned."""
    dynamic = torch.export.Dim.DYNAMIC
    scaled = compiled(Calls(lambda lin, x, n: lin(x) * n), (X, 3), dynamic_shapes=((None, dynamic),))
    assert [scaled(X, n).shape for n in (3, 5)] == [X.shape] * 2
    assert not torch.equal(scaled(X, 3), scaled(X, 5))
    size = compiled(Calls(lambda lin, x: x.shape[0]), (X,), dynamic_shapes=(({0: dynamic},),))
    assert (size(X), size(X[:2])) == (X.shape[0], 2)


@pytest.mark.parametrize("args", [(), (X, X), (X[:, :3],)])
def test_example_inputs_that_the_model_refuses_are_an_export_error(
    compiled: Callable[..., trtcache.CompiledModule], args: tuple[Any, ...]
) -> None:
    """Wrong arguments to ``compile`` are reported as the model's own complaint."""
    with pytest.raises(ExportError, match="Linear"):
        compiled(nn.Linear(4, 4), args)


def test_an_unknown_backend_is_told_from_the_known_ones() -> None:
    """A misspelt backend's message has the name that was meant."""
    with pytest.raises(BackendUnavailableError, match="did you mean 'aot_inductor'"):
        trtcache.compile(nn.Linear(4, 4), (X,), backend="aot_inducter")


def test_an_unknown_setting_or_target_is_told_from_the_known_ones() -> None:
    """A misspelt setting's or target's message has the name that was meant."""
    with pytest.raises(SettingsError, match="did you mean 'inductor'"):
        trtcache.key(nn.Linear(4, 4), (X,), settings={"inducter": {}})
    with pytest.raises(SettingsError, match="did you mean 'x86-64-v3'"):
        trtcache.key(nn.Linear(4, 4), (X,), target="x86-64-v33")


def test_key_is_the_key_that_compile_uses(compiled: Callable[..., trtcache.CompiledModule], engines: Path) -> None:
    """``key`` takes the arguments of ``compile``, builds nothing, and returns what the report shows."""
    key = trtcache.key(Affine(), (X,), backend="interpreter", cache=engines, name="any")
    assert compiled(Affine(), (X,)).report.partitions[0].key.digest == key.digest
    assert key.document["kind"] == "interpreter"


def test_lower_shows_the_program(interpreter: str) -> None:
    """The text of a lowered program has numbered inputs, weights and results."""
    program = trtcache.lower(Affine(), (X,), backend=interpreter, name="affine")
    assert program.name == "affine"
    assert program.text.splitlines()[-1].startswith("return result ")
    assert "f32[3,4]" in program.text
    assert {slot.names for slot in program.interface.slots} == {("a",), ("b",), ("c",)}


def test_the_second_compile_is_a_hit_and_the_report_says_so(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first report says built and why, the second hit, with the same key and the file that both are about."""
    first = compiled(Affine(), (X,), cache=tmp_path / "c").report
    with caplog.at_level("INFO"):
        second = compiled(Affine(2.0), (X,), cache=tmp_path / "c", name="two").report
    one, two = first.partitions[0], second.partitions[0]
    assert (one.outcome, one.reason, two.outcome, two.reason) == ("built", "absent", "hit", "")
    assert (one.key.digest, one.path) == (two.key.digest, two.path)
    assert two.weights == 3
    assert second.overhead_s > 0
    assert "two: interpreter for cpu" in str(second)
    assert "hit" in str(second)
    assert str(second) in caplog.text


def test_an_entry_that_does_not_load_is_built_again_and_counted(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """A sound entry that the backend refuses is put aside under the reason ``load`` and replaced."""
    key = trtcache.key(Affine(), (X,), backend="interpreter")
    cache = trtcache.Cache(tmp_path / "c")
    cache.get_or_build_key(key, lambda: {"engine": b"graph 999999"})
    module = compiled(Affine(), (X,), cache=cache)
    assert module.report.partitions[0].outcome == "built"
    assert module.report.partitions[0].reason == "load"
    assert difference(Affine()(X), module(X)) is None
    assert compiled(Affine(), (X,), cache=tmp_path / "c").report.partitions[0].outcome == "hit"
    assert cache.store is not None
    assert [event.reason for event in cache.store.events.read() if event.event == "reject"] == ["load"]


def test_an_entry_is_kept_if_a_new_one_does_not_load_either(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is at fault then: other processes, and this one later, still find the entry."""
    cache = trtcache.Cache(tmp_path / "c")
    compiled(Affine(), (X,), cache=cache)

    def refuse(*_: object, **__: object) -> object:
        raise IncompatibleEngineError("engine", "out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(type(registry.find("interpreter", "cpu")), "load_entry", refuse)
        with pytest.raises(IncompatibleEngineError, match="out of memory"):
            compiled(Affine(), (X,), cache=cache)
    assert compiled(Affine(), (X,), cache=cache).report.partitions[0].outcome == "hit"
    assert compiled(Affine(), (X,), cache=tmp_path / "c").report.partitions[0].outcome == "hit"
    assert cache.store is not None
    assert not [event for event in cache.store.events.read() if event.event == "reject"]


def damage(path: str) -> None:
    """Change the last bytes of an entry."""
    with open(path, "r+b") as file:  # noqa: PTH123  # a report's path is text
        file.seek(-3, 2)
        file.write(b"\xff\xfe\xfd")


def test_a_damaged_entry_is_built_again(compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path) -> None:
    """One flipped byte of the engine makes the next compile build, with the reason in its report."""
    damage(compiled(Affine(), (X,), cache=tmp_path / "c").report.partitions[0].path)
    module = compiled(Affine(), (X,), cache=tmp_path / "c")
    assert (module.report.outcome, module.report.partitions[0].reason) == ("built", "corrupt:member")
    assert module.report.why == "the stored entry was damaged (member)"
    assert difference(Affine()(X), module(X)) is None
    assert compiled(Affine(), (X,), cache=tmp_path / "c").report.outcome == "hit"


def test_the_error_of_a_forbidden_build_names_the_damage(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that there is no similar entry: the entry itself was there."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "c"))
    damage(compiled(Affine(), (X,), cache=None).report.partitions[0].path)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(trtcache.errors.BuildForbiddenError, match=r"\(the stored entry was damaged \(member\)\)"):
        compiled(Affine(), (X,), cache=None)
    with pytest.raises(trtcache.errors.BuildForbiddenError, match=r"\(no similar interpreter entry\)"):  # quarantined
        compiled(Affine(), (X,), cache=None)


def test_variables_say_how_the_cache_is_used(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``TRTCACHE_DISABLE``, ``_READONLY``, ``_RECACHE`` and ``_FORBID_BUILD`` do what they say to compile."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    with pytest.raises(trtcache.errors.BuildForbiddenError, match="FORBID_BUILD"):
        compiled(Affine(), (X,), cache=None)
    monkeypatch.delenv("TRTCACHE_FORBID_BUILD")
    outcomes = []
    for variable in ("TRTCACHE_DISABLE", "TRTCACHE_READONLY", "NONE", "TRTCACHE_FORBID_BUILD", "TRTCACHE_RECACHE"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "1")
            report = compiled(Affine(), (X,), cache=None).report
        one = report.partitions[0]
        outcomes.append((one.outcome, one.reason))
        assert (f"not stored: {tmp_path / 'c'} is read-only" in str(report)) == (variable == "TRTCACHE_READONLY")
    assert outcomes == [
        ("built", "disabled"),
        ("built", "readonly"),
        ("built", "absent"),
        ("hit", ""),
        ("built", "recache"),
    ]


def test_an_unusable_default_cache_costs_a_warning_and_a_named_one_is_an_error(
    compiled: Callable[..., trtcache.CompiledModule],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A directory that is not a store is refused where the caller named it, and else built without."""
    (tmp_path / "holiday.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(NotAStoreError, match=str(tmp_path)):
        compiled(Affine(), (X,), cache=tmp_path)
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path))
    module = compiled(Affine(), (X,), cache=None)
    assert module.report.partitions[0].path is None
    assert difference(Affine()(X), module(X)) is None
    assert "building without a cache" in caplog.text
    assert [one.name for one in tmp_path.iterdir()] == ["holiday.jpg"]


def test_importing_the_package_imports_no_torch(run_fresh_python: Callable[..., Any]) -> None:
    """``import trtcache`` leaves torch and SQLAlchemy to whoever uses them."""
    done = run_fresh_python("import sys, trtcache; print([n for n in ('torch', 'sqlalchemy') if n in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr

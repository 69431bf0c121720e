"""Recording of exports: impure functions and environment variables, and errors of the recording itself."""

from __future__ import annotations

import abc
import datetime
import dis
import functools
import gc
import importlib.util
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch

import trtcache
from tests.direct.package import X
from trtcache.frontends.direct.bytecode import _normalize
from trtcache.frontends.direct.classes import changed_answers, registered_classes
from trtcache.frontends.direct.code import code_digest
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.globals import Globals
from trtcache.frontends.direct.manifest import FORMAT, read
from trtcache.frontends.direct.mode import describe
from trtcache.frontends.direct.ownership import is_impure_in_torch
from trtcache.frontends.direct.recording import record_export
from trtcache.frontends.direct.surroundings import surroundings
from trtcache.frontends.direct.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtcache.runtime import CompiledModule

HUGE = 10**5000
TABLE = Path(__file__)


class Hostile:
    """An object whose attributes raise, as those of a proxy of nothing do."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise OSError("hostile")


class Does(torch.nn.Module):
    """Does what a function does."""

    def __init__(self, does: Callable[[torch.Tensor], torch.Tensor], **attributes: Any) -> None:
        super().__init__()
        self.does = does
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.does(x)


class Both(Does):
    """Does what a function does with the sums of two arguments."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.does(x.sum(0), y.sum(0))


class WithHostile(Does):
    """Has such an object as an attribute of its class."""

    kept = Hostile()


def _loaded(x: torch.Tensor) -> torch.Tensor:
    return x + torch.load(TABLE)["by"]


def _found(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if importlib.util.find_spec("math") is not None else x


def _in_bytes(x: torch.Tensor) -> torch.Tensor:
    return x + float(os.getenvb(b"TRTCACHE_TEST_SCALE", b"1"))


ASKING: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "a seed": (lambda x: x + torch.initial_seed() % 7, "torch.random.initial_seed"),
    "a seed by what wraps it": (lambda x: x + torch.manual_seed(torch.initial_seed()).initial_seed() % 7, "random."),
    "a state": (lambda x: x + len(torch.default_generator.get_state()), "get_state"),
    "a record of a log": (lambda x: x + logging.makeLogRecord({}).created * 0, "makeLogRecord"),
    "the processor": (lambda x: x + len(torch.backends.cpu.get_cpu_capability()), "get_cpu_capability"),
    "a file": (_loaded, "torch.serialization.load"),
    "whether a module that is loaded can be found": (_found, "importlib.util.find_spec"),
}


def _compiled(model: torch.nn.Module, interpreter: str, folder: Path) -> CompiledModule:
    return trtcache.compile(model, (X,), backend=interpreter, cache=folder / "cache", direct="on")


@pytest.mark.parametrize("name", ASKING)
def test_impure_functions_of_torch_turn_direct_mode_off(
    name: str, interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions of torch and of Python's library may depend on the machine, the process or a file."""
    torch.save({"by": 3.0}, tmp_path / "table.pt")
    monkeypatch.setattr(f"{__name__}.TABLE", tmp_path / "table.pt")
    does, word = ASKING[name]
    outcome = _compiled(Does(does), interpreter, tmp_path).report.direct
    assert outcome.startswith("off: ")
    assert word in outcome


def test_listed_names_of_torch_exist() -> None:
    """Rank and device are read by such functions; whether there is CUDA is in the key."""
    asking = (torch.distributed.get_rank, torch.cuda.get_device_capability, torch.cuda.mem_get_info, torch.hub.list)
    for one in (*asking, torch.utils.data.get_worker_info, torch.cuda.current_device, torch.distributed.get_backend):
        assert is_impure_in_torch(one.__module__, one.__name__)
    known = (torch.cuda.is_available, torch.distributed.is_available, torch.distributed.is_initialized)
    for one in (*known, torch.nn.functional.dropout, torch.cuda.is_current_stream_capturing):
        assert not is_impure_in_torch(one.__module__, one.__name__)
    assert not is_impure_in_torch("torch.cuda.amp.autocast_mode", "__init__")


def test_a_variable_read_as_bytes_is_recorded(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same variable."""
    model = Does(_in_bytes)
    _compiled(model, interpreter, tmp_path)
    assert _compiled(model, interpreter, tmp_path).report.direct == "hit"
    monkeypatch.setenv("TRTCACHE_TEST_SCALE", "3")
    assert "TRTCACHE_TEST_SCALE" in _compiled(model, interpreter, tmp_path).report.direct


def _seen(x: torch.Tensor) -> torch.Tensor:
    return x * (1.0 if getattr(x, "grad", None) is None else 2.0)


def test_attributes_set_on_torchs_classes_are_noticed(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers as well as numbers, on layers and on tensors."""
    model = torch.nn.Sequential(Does(lambda x: x * x.scales["a"]), Does(torch.neg))
    monkeypatch.setattr(torch.Tensor, "scales", {"a": 2.0}, raising=False)
    monkeypatch.setattr(torch.nn.Module, "scales", [2.0], raising=False)
    _compiled(model, interpreter, tmp_path)
    assert _compiled(model, interpreter, tmp_path).report.direct == "hit"
    torch.Tensor.scales["a"] = 3.0  # type: ignore[attr-defined]
    assert "torch.Tensor[3].scales" in _compiled(model, interpreter, tmp_path).report.direct
    torch.nn.Module.scales[0] = 3.0  # type: ignore[operator, index]
    assert "scales" in _compiled(model, interpreter, tmp_path).report.direct


def test_a_gradient_looked_up_by_a_string_is_refused(interpreter: str, tmp_path: Path) -> None:
    """Like one that is an attribute in the code."""
    assert "reads grad" in _compiled(Does(_seen), interpreter, tmp_path).report.direct


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"), torch.cuda.amp.autocast(enabled=False):
        return x + 1


COMMON: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a function of NumPy": lambda x: x + int(np.prod(x.shape)),
    "the version of Python": lambda x: x + (sys.version_info >= (3, 9)),
    "a deprecated class": _autocast,
}


@pytest.mark.parametrize("name", COMMON)
def test_common_code_hits(name: str, interpreter: str, tmp_path: Path) -> None:
    """Code that ordinary models contain."""
    outcomes = [_compiled(Does(COMMON[name]), interpreter, tmp_path).report.direct for _ in range(2)]
    assert outcomes[1] == "hit", outcomes


def test_hooks_are_known_by_their_order(interpreter: str, tmp_path: Path) -> None:
    """Not by the numbers that torch gives them, which another model's hooks raise, and an exchange is noticed."""
    for first, expected in ((1, "miss"), (1, "hit"), (2, "miss: attribute inner._forward_hooks")):
        model = Does(torch.neg, inner=torch.nn.Identity())
        for by in (first, 3 - first):
            model.inner.register_forward_hook(functools.partial(torch.add, alpha=by))
        assert _compiled(model, interpreter, tmp_path).report.direct.startswith(expected)


def test_a_global_hook_is_known_by_its_kind() -> None:
    """One that is called before a module is not one that is called afterwards."""

    def hook(module: torch.nn.Module, *given: object) -> None:
        del module, given

    kinds = (torch.nn.modules.module._global_forward_hooks, torch.nn.modules.module._global_forward_pre_hooks)
    described = []
    for hooks in kinds:
        hooks[0] = hook
        try:
            described.append(surroundings(Walk(torch.nn.Identity()))["hooks"])
        finally:
            del hooks[0]
    assert described[0] != described[1]


def test_a_collection_of_shapes_is_known_by_the_arguments(interpreter: str, tmp_path: Path) -> None:
    """It has them by their numbers in the process: other arguments in its place have other sizes."""
    model, (one, other) = Both(torch.add), (torch.rand(3, 4), torch.rand(3, 4))
    shapes = torch.export.ShapesCollection()
    shapes[one] = {0: torch.export.Dim("rows", min=2, max=8)}

    def outcome(*args: torch.Tensor) -> str:
        shared = {"backend": interpreter, "cache": tmp_path / "cache", "direct": "on"}
        return str(trtcache.compile(model, args, dynamic_shapes=shapes, **shared).report.direct)

    assert outcome(one, other).startswith("miss")
    assert outcome(one, other) == "hit"
    assert outcome(other, one).startswith("miss: dynamic_shapes")


HARMLESS: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "an object of a class that raises": (lambda: WithHostile(lambda x: x + 1), "Hostile"),
    "a number of 5001 digits": (lambda: Does(lambda x: x + (HUGE > 0)), "4300"),
    "a key that is no text": (lambda: Does(lambda x: x + 1, kept={"\udcff": iter([1])}), "iterator"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_an_export_that_cannot_be_recorded_is_compiled(name: str, interpreter: str, tmp_path: Path) -> None:
    """Direct mode is off for it, with the reason."""
    made, word = HARMLESS[name]
    module = _compiled(made(), interpreter, tmp_path)
    assert module.report.direct.startswith("off: ")
    assert word in module.report.direct
    assert module.report.direct.isprintable()  # no lone surrogates: logs and terminals take it
    assert torch.equal(module(X), X + 1)


def test_a_replaced_environment_turns_direct_mode_off(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads from a replacement of os.environ are not recorded."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert "os.environ was replaced" in _compiled(Does(torch.neg), interpreter, tmp_path).report.direct


def test_a_replaced_environment_does_not_change_reads_of_bytes(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reads bytes gets them, beside a replacement of os.environ."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    module = _compiled(Does(_in_bytes), interpreter, tmp_path)
    assert module.report.direct.startswith("off: ")
    assert torch.equal(module(X), X + 1)


class Zone(datetime.tzinfo):
    """A time zone whose text does not tell its offset."""

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def __repr__(self) -> str:
        return "Zone()"


def test_an_alias_of_a_class_is_described_with_the_class() -> None:
    """It has the attributes of the class, and calls it."""
    one, other = (type("Listed", (list,), {"BY": by})[int] for by in (2.0, 3.0))
    assert (repr(one), one.BY) == (repr(other), 2.0)
    assert Walk(torch.nn.Identity()).value(one) != Walk(torch.nn.Identity()).value(other)


@pytest.mark.parametrize("maxsize", [None, 8])
def test_a_cache_that_distinguishes_types_has_another_description(maxsize: int | None) -> None:
    """One that does not has a single result for 1 and 1.0."""
    described = [
        Walk(torch.nn.Identity()).value(functools.lru_cache(maxsize, typed)(_loaded)) for typed in (False, True, False)
    ]
    assert described[0] == described[2] != described[1]


@pytest.mark.parametrize("when", [datetime.time(1), datetime.datetime(2020, 1, 1)], ids=str)
def test_times_are_described_with_their_zone(when: Any) -> None:
    """Not by their text, in which a zone of one's own shows what it likes."""
    walk = Walk(torch.nn.Identity())
    described = [walk.value(one) for one in (when, when.replace(tzinfo=datetime.UTC), when.replace(fold=1))]
    assert described[0] not in described[1:]
    with pytest.raises(UnstableError, match="Zone"):
        walk.value(when.replace(tzinfo=Zone(1)))


def test_precision_that_is_set_in_two_ways_is_described() -> None:
    """Torch raises when the older of two settings is read and differs."""
    before = surroundings(Walk(torch.nn.Identity()))
    matmul: Any = torch.backends.cuda.matmul
    was = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        assert surroundings(Walk(torch.nn.Identity())) != before
    finally:
        matmul.fp32_precision = was
    assert surroundings(Walk(torch.nn.Identity())) == before


def test_an_error_in_verification_does_not_fail_the_compile(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome has the reason."""

    def failing(*_: Any) -> None:
        raise OSError("no comparison")

    _compiled(Does(torch.neg), interpreter, tmp_path)
    monkeypatch.setattr("trtcache.keys.program_digest.exported_digest", failing)
    module = trtcache.compile(Does(torch.neg), (X,), backend=interpreter, cache=tmp_path / "cache", direct="verify")
    assert module.report.direct == "off: no comparison"


def test_an_export_that_is_only_compared_is_not_recorded(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program is compared with that of the manifest, and no other is stored."""
    _compiled(Does(torch.neg), interpreter, tmp_path)
    monkeypatch.setattr("trtcache.frontends.direct.recording.record_export", lambda met: pytest.fail("recorded"))
    module = trtcache.compile(Does(torch.neg), (X,), backend=interpreter, cache=tmp_path / "cache", direct="verify")
    assert module.report.direct == "verified"


def test_others_are_described_as_ever_while_an_export_is_watched() -> None:
    """Another thread finds its manifest meanwhile, and what it reads of the environment is not the model's."""
    model = Does(torch.neg)
    walk, parts = describe(model, ((X,), {}, None))
    with record_export(Globals(walk)) as seen:
        assert describe(model, ((X,), {}, None))[1] == parts
        reader = threading.Thread(target=lambda: [os.environ.get("TRTCACHE_TEST_OTHER"), len(os.environ)])
        reader.start()
        reader.join()
    assert (seen.environment, seen.why_not) == ({}, "")


def test_other_threads_can_set_variables_while_an_export_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of all variables is made at once, as it is otherwise."""
    walk, _ = describe(Does(torch.neg), ((X,), {}, None))
    with record_export(Globals(walk)) as seen:
        names = iter(vars(os.environ)["_data"])
        monkeypatch.setenv("TRTCACHE_TEST_OTHER", "1")
        assert len([*names]) == len(os.environ) - 1
    assert "environment" in seen.why_not


class Option:
    """An object whose text has its address."""


OPTION = Option()


class WithMode(Does):
    """Has a method that torch.export calls outside of the model's call."""

    def train(self, mode: bool = True) -> torch.nn.Module:
        return super().train(mode and OPTION is not None)


def test_nothing_of_a_recording_stays(interpreter: str, tmp_path: Path) -> None:
    """A class that a method leads to has no other ``__repr__`` afterwards, which would keep the model, too."""
    model = WithMode(torch.neg)
    freed = weakref.ref(model)
    assert _compiled(model, interpreter, tmp_path).report.direct.startswith("miss")
    del model
    gc.collect()
    assert "__repr__" not in vars(Option)
    assert freed() is None


def test_classes_of_a_model_that_is_no_longer_used_are_freed(interpreter: str, tmp_path: Path) -> None:
    """Such as those that a function creates, with what they refer to."""

    class Own(Does):
        """A class of a model."""

    class Scale:
        """A class of an attribute."""

        by = 2.0

    kinds = [weakref.ref(kind) for kind in (Own, Scale)]
    for _ in range(2):
        outcome = _compiled(Own(torch.neg, scale=Scale()), interpreter, tmp_path).report.direct
    assert outcome == "hit"
    del Own, Scale
    gc.collect()
    assert [kind() for kind in kinds] == [None, None]


class Asked(metaclass=abc.ABCMeta):  # noqa: B024  # only asked about subclasses
    """An abstract base class that answers otherwise when it is asked again."""

    answers: ClassVar[list[bool]] = [False, True]

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return cls.answers.pop()


class Derived(metaclass=abc.ABCMeta):  # noqa: B024  # only asked about subclasses
    """An abstract base class with registered classes only."""


def _asks(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if isinstance("a text", Asked) and not isinstance(x, (Sized, Derived)) else x


def test_answers_that_abstract_base_classes_keep_stay() -> None:
    """A description asks nothing again, so that the program is the same with and without direct mode."""
    assert isinstance("a text", Asked)
    Walk(Does(_asks)).value(_asks)
    assert isinstance("a text", Asked)
    assert Asked.answers == [False]


def test_an_answer_that_would_be_another_now_is_described() -> None:
    """Unless a registration has made Python forget it."""
    kind = type("Kind", (), {})
    assert not issubclass(kind, Sized)
    assert list(changed_answers(Sized)) == []
    kind.__len__ = lambda self: 1  # type: ignore[attr-defined]
    assert list(changed_answers(Sized)) == [(False, kind)]
    Derived.register(kind)
    assert issubclass(kind, Derived)
    assert list(changed_answers(Derived)) == []
    assert list(changed_answers(Sized)) == []  # since another class was registered, Python asks again


def test_answers_of_a_class_with_anothers_tables_are_not_described() -> None:
    """Types that Cython derives from an abstract base class have its tables, and another metaclass."""
    assert issubclass(dict, Sized)
    typed = type("Typed", (), {"_abc_impl": Sized.__dict__["_abc_impl"]})
    assert (list(changed_answers(typed)), registered_classes(typed)) == ([], [])


def test_answers_of_a_hook_of_ones_own_are_described() -> None:
    """So are those of a metaclass: neither is called to find out."""
    hooked = abc.ABCMeta("Hooked", (), {"__subclasshook__": classmethod(lambda cls, kind: True)})
    assert issubclass(int, hooked)
    assert list(changed_answers(hooked)) == [(True, int)]
    meta = type("Meta", (type,), {"__subclasscheck__": lambda cls, kind: kind is float})
    Derived.register(meta("Odd", (), {}))
    assert issubclass(float, Derived)
    assert (True, float) in list(changed_answers(Derived))


def test_an_infinite_number_is_damage() -> None:
    """Python's JSON parser accepts infinities."""
    with pytest.raises(ValueError, match=r"TypeError|OverflowError"):
        read(b'{"format": %d, "manifests": [{"program": ["", Infinity]}]}' % FORMAT)


def test_instructions_for_two_variables_are_taken_apart() -> None:
    """Python 3.13 has such ones, and 3.14 has them for what is borrowed as well."""
    step = next(one for one in dis.get_instructions(_loaded.__code__) if one.opname.startswith("LOAD_FAST"))
    for opname, expected in (
        ("LOAD_FAST_LOAD_FAST", ["LOAD_FAST", "LOAD_FAST"]),
        ("STORE_FAST_LOAD_FAST", ["STORE_FAST", "LOAD_FAST"]),
        ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ["LOAD_FAST", "LOAD_FAST"]),
    ):
        found = list(_normalize([step._replace(opname=opname, argval=("a", "b"))]))
        assert [(one.opname, one.argval) for one in found] == list(zip(expected, "ab", strict=True))
        assert [dis.opname[one.opcode] for one in found] == expected  # whose effects on the stack are added up
    (number,) = _normalize([step._replace(opname="LOAD_SMALL_INT", arg=3, argval=3)])
    (item,) = _normalize([step._replace(opname="BINARY_OP", argrepr="[]")])
    assert (number.opname, number.argval, item.opname) == ("LOAD_CONST", 3, "BINARY_SUBSCR")


def test_a_constant_slice_is_in_the_digest_of_code() -> None:
    """Python 3.14 has such constants, which ``marshal`` does not write in the version without references."""
    code = _loaded.__code__
    found = [code_digest(code.replace(co_consts=(None, slice(1, end), (slice(0, 2),)))) for end in (2, 3, 3.0)]
    assert len(set(found)) == len(found)

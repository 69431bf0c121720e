"""Independent parts of a program run side by side: answers, order of effects, errors, forks, the end of a process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import trtcache
from tests.partition.parts import Towers, double
from trtcache.errors import InputError
from trtcache.runtime.executor import PartitionedEngine
from trtcache.testing.interpreter import Interpretation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOWERS = 3
MEET_S = 60


def given(rows: int = 2) -> tuple[torch.Tensor, ...]:
    """Return inputs of ``Towers``."""
    return tuple(torch.randn(rows, 8) for _ in range(TOWERS))


@pytest.fixture
def module(interpreter: str, tmp_path: Path) -> trtcache.CompiledModule:
    """Three engines whose results meet in an operator that stays in torch."""
    settings = {"torch_executed_ops": ["aten.cat"]}
    return trtcache.compile(Towers(TOWERS), given(), backend=interpreter, cache=tmp_path, settings=settings)


def schedule(module: trtcache.CompiledModule) -> PartitionedEngine:
    """Return what runs a module's parts."""
    found = module._swap.engine
    assert isinstance(found, PartitionedEngine)
    return found


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> threading.Barrier:
    """Let no engine end before all of a call's are under way."""
    run, barrier = Interpretation.run, threading.Barrier(TOWERS)

    def met(self: Interpretation, inputs: Any) -> Any:
        barrier.wait(MEET_S)
        return run(self, inputs)

    monkeypatch.setattr(Interpretation, "run", met)
    return barrier


def test_independent_engines_run_at_once_where_inter_says_so(
    module: trtcache.CompiledModule, meeting: threading.Barrier
) -> None:
    """By ``trtcache.threads``; in inference mode and under autocast too."""
    args = given()
    with trtcache.threads(intra=1, inter=TOWERS):
        torch.testing.assert_close(module(*args), Towers(TOWERS)(*args))
        with torch.inference_mode():
            assert module(*args).is_inference()
    assert schedule(module).at_once == TOWERS
    assert not meeting.broken


def test_settings_say_so_for_a_module(
    interpreter: str, tmp_path: Path, meeting: threading.Barrier, caplog: pytest.LogCaptureFixture
) -> None:
    """And ``trtcache.threads`` is over them; a refit and other weights keep it."""
    settings = {"torch_executed_ops": ["aten.cat"], "threads": {"intra": 1, "inter": TOWERS}}
    module = trtcache.compile(Towers(TOWERS), given(), backend=interpreter, cache=tmp_path, settings=settings)
    args, other = given(), Towers(TOWERS, seed=1)
    torch.testing.assert_close(module.with_weights(other.state_dict())(*args), other(*args))
    meeting.abort()
    with trtcache.threads(inter=1), pytest.raises(threading.BrokenBarrierError):
        module(*args)


def test_without_a_number_parts_run_in_turn_and_no_thread_is_made(module: trtcache.CompiledModule) -> None:
    """The number of runners that the cores have room for is none that anybody chose."""
    module(*given())
    with trtcache.threads(inter=2), torch.device("cpu"):  # a mode, which other threads cannot have
        module(*given())
        assert all(crew.inter == 2 for crew in schedule(module)._inter_op._pools.values())
    before = threading.active_count()
    module(*given())
    assert threading.active_count() == before


def test_callers_side_by_side_have_their_own_answers(module: trtcache.CompiledModule) -> None:
    """2,000 calls of 8 threads that share the helpers, each with its own input, and a refit meanwhile."""
    inputs = [given() for _ in range(25)]
    alone = [module(*one) for one in inputs]

    def call_all(_: int) -> bool:
        with trtcache.threads(inter=3):
            return all(torch.equal(module(*one), before) for one, before in zip(inputs * 10, alone * 10, strict=True))

    with ThreadPoolExecutor(8) as callers:
        futures = [callers.submit(call_all, number) for number in range(8)]
        for _ in range(5):
            module.refit(Towers(TOWERS))
        assert all(one.result(MEET_S) for one in futures)


def test_runners_and_parts_at_once(
    module: trtcache.CompiledModule, monkeypatch: pytest.MonkeyPatch, interpreter: str, tmp_path: Path
) -> None:
    """With a number of runners ``inter`` is for the parts; without one it is that number, and parts run in turn."""
    monkeypatch.setattr("trtcache.config.threads.cores", lambda: 4)
    args = given()
    with trtcache.threads(inter=2):
        with module.runners(2) as runners:
            assert str(runners.report).startswith("2 runners, 1 threads for each part (2 at once) (")
            assert torch.equal(runners.submit(*args).result(MEET_S), module(*args))
            assert len(list(runners.map(*([one] * 20 for one in args)))) == 20
        with module.runners(3, intra=1) as runners:
            told = "3 runners with 2 parts at once of 1 threads each (runners) are 6 threads on 4 cores; "
            assert f"{told}runners(3, intra=1) with trtcache.threads(inter=1) fits" in str(runners.report)
        with module.runners(intra=1) as runners:
            assert (runners.report.runners, runners.report.inter) == (2, 1)
        whole = trtcache.compile(nn.Tanh(), (args[0],), backend=interpreter, cache=tmp_path)
        assert whole.runners(2).report.inter == 1


class Drawing(nn.Module):
    """Parts that draw random numbers, and a custom operator that has an effect without saying so."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        made = [noted((one.sin() + torch.rand_like(one)).cos()) for one in inputs]
        return double(torch.stack(made))


NOTES: list[float] = []


@torch.library.custom_op("trtcache_parts::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    """Note the first number of a tensor, and add a random one."""
    NOTES.append(float(x.flatten()[0]))
    return x + torch.rand(())


@noted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_random_numbers_and_effects_keep_their_order(interpreter: str, tmp_path: Path) -> None:
    """Also those of a custom operator that declares neither: each call is what it is with parts in turn."""
    settings = {"torch_executed_ops": ["aten.rand_like"], "threads": {"intra": 1, "inter": 4}}
    module = trtcache.compile(Drawing(), given(), backend=interpreter, cache=tmp_path, settings=settings)
    assert schedule(module).at_once > 1
    args = given()

    def answer(inter: int) -> tuple[torch.Tensor, list[float]]:
        NOTES.clear()
        torch.manual_seed(0)
        with trtcache.threads(inter=inter):
            return module(*args), NOTES.copy()

    expected, notes = answer(1)
    for _ in range(30):
        found, order = answer(4)
        assert torch.equal(found, expected)
        assert order == notes


def test_an_error_of_a_part_is_the_calls(module: trtcache.CompiledModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread it was in; a later call answers."""
    args, run = given(), Interpretation.run
    expected, failing = module(*args), list(schedule(module)._engines.values())[1]
    refuses = True

    def refusing(self: Interpretation, inputs: Any) -> Any:
        if self is failing and refuses:
            raise ValueError("no such value")
        return run(self, inputs)

    monkeypatch.setattr(Interpretation, "run", refusing)
    with trtcache.threads(inter=TOWERS):
        for _ in range(20):
            with pytest.raises(ValueError, match="no such value"):
                module(*args)
        with pytest.raises(InputError):
            module(*given(3))
        refuses = False
        assert torch.equal(module(*args), expected)


def test_parts_of_one_engine_that_has_no_room_for_two_run_in_turn(module: trtcache.CompiledModule) -> None:
    """Nobody promises that it can be entered twice."""
    parts = schedule(module)
    engine = next(iter(parts._engines.values()))
    one = PartitionedEngine(parts._plan, dict.fromkeys(parts._engines, engine), parts._weights, parts._constants)
    assert (parts.at_once, one.at_once) == (TOWERS, 1)


@pytest.mark.slow
def test_packages_run_at_once_in_forks_and_to_the_end_of_a_process(
    run_python: Callable[..., Any], engines: Path
) -> None:
    """With the same answers: while runners call, in a fork that makes its own threads, and as the interpreter ends."""
    code = """
    import os, signal, threading, torch, trtcache
    from tests.partition.parts import Towers
    args = tuple(torch.randn(2, 8) for _ in range(3))
    settings = {"torch_executed_ops": ["aten.cat"], "threads": {"intra": 1, "inter": 3}}
    module = trtcache.compile(Towers(3), args, settings=settings)
    with trtcache.threads(inter=1):
        before = module(*args)
    assert all(torch.equal(module(*args), before) for _ in range(200))
    kinds = {type(one).__name__ for one in module._swap.engine._engines.values()}
    runners = module.runners(2, intra=1)
    assert (kinds, runners.report.inter) == ({"ParallelEngine"}, 3), (kinds, runners.report)
    futures = [runners.submit(*args) for _ in range(1000)]
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same = torch.equal(module(*args), before) and torch.equal(runners.submit(*args).result(), before)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(torch.equal(one.result(60), before) for one in futures)

    def go_on():
        threading.main_thread().join()
        print(all(torch.equal(module(*args), before) for _ in range(100)), flush=True)

    threading.Thread(target=go_on).start()
    """
    done = run_python(code, TRTCACHE_DIR=str(engines))
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr

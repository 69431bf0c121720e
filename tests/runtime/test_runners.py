"""Runners: parallel calls on one engine, refits meanwhile, errors, forks, the end of the process."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.backends.aot_inductor.container import Container, PackageLibrary, ProcessContainer
from trtcache.backends.aot_inductor.loader import PackageEngine, ParallelEngine
from trtcache.config.threads import EffectiveThreads
from trtcache.errors import IncompatibleEngineError, InputError, RunError, SettingsError
from trtcache.runtime.runners import Runners, RunnersReport, parallel_engine, report_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

X = torch.randn(3, 4)


@pytest.fixture
def module(engines: Path) -> trtcache.CompiledModule:
    """A package whose answer tells which weights it has."""
    return trtcache.compile(Affine(1.0), (X,), cache=engines)


def expected(x: torch.Tensor, value: float) -> torch.Tensor:
    """Return the first of ``Affine``'s results."""
    return x @ torch.full((4, 4), value) + value


def test_calls_from_many_threads_have_their_own_answers(module: trtcache.CompiledModule) -> None:
    """10,000 calls of 8 threads, each with its own input, are bit by bit what the module answered alone."""
    inputs = [torch.randn(3, 4) for _ in range(50)]
    alone = [module(x) for x in inputs]
    with module.runners(2, intra=1) as runners, ThreadPoolExecutor(8) as callers:

        def call_all(_: int) -> bool:
            futures = [runners.submit(x) for x in inputs * 25]
            return all(
                all(map(torch.equal, future.result(60), before))
                for future, before in zip(futures, alone * 25, strict=True)
            )

        assert runners.report.is_parallel
        assert list(callers.map(call_all, range(8))) == [True] * 8
        assert [torch.equal(one[0], before[0]) for one, before in zip(runners.map(inputs), alone, strict=True)] == (
            [True] * 50
        )


def test_the_weights_are_the_models_own_memory(engines: Path) -> None:
    """However many runners there are: what is written into the model shows in all of them."""
    model = Affine(1.0)
    runners = trtcache.compile(model, (X,), cache=engines).runners(3)
    with torch.no_grad():
        model.b.fill_(5.0)
    assert all(torch.allclose(one[0], X @ torch.ones(4, 4) + 5) for one in runners.map([X] * 9))


def test_a_refit_while_calls_run_gives_each_the_old_weights_or_the_new(module: trtcache.CompiledModule) -> None:
    """Every answer is wholly of one set of weights, and the last ones are of the last set."""
    allowed = [expected(X, value) for value in (1.0, 2.0, 3.0)]
    with module.runners(2) as runners:
        futures = [runners.submit(X) for _ in range(100)]
        for value in (2.0, 3.0):
            module.refit(Affine(value))
            futures += [runners.submit(X) for _ in range(100)]
        answers = [future.result(60)[0] for future in futures]
        assert all(any(torch.allclose(one, other) for other in allowed) for one in answers)
        assert torch.allclose(answers[-1], allowed[-1])
        other = module.with_weights(Affine(1.0).state_dict())
        assert torch.allclose(other(X)[0], allowed[0])


def test_a_call_that_raises_takes_nothing_from_the_others(module: trtcache.CompiledModule) -> None:
    """Its future has the error, and the same threads go on."""
    with module.runners(2) as runners:
        futures = [runners.submit(X[:2] if number % 2 else X) for number in range(40)]
        failed = [isinstance(future.exception(60), InputError) for future in futures]
        assert failed == [bool(number % 2) for number in range(40)]
        assert len(list(runners.map([X] * 10))) == 10
    with pytest.raises(RunError, match="closed"):
        runners.submit(X)


def test_map_takes_items_as_outputs_are_taken(module: trtcache.CompiledModule) -> None:
    """A few for each runner are ahead; what is left when nobody wants more is not called."""
    taken: list[int] = []

    def items() -> Iterator[torch.Tensor]:
        for number in range(100):
            taken.append(number)
            yield X * number

    with module.runners(2) as runners:
        answers = runners.map(items())
        assert len(taken) == 8
        assert torch.equal(next(answers)[0], module(X * 0)[0])
        assert torch.equal(next(answers)[0], module(X)[0])
        assert len(taken) == 10
        answers.close()  # type: ignore[attr-defined]  # it is a generator
        assert [one[0].shape for one in runners.map([])] == []
        failing = runners.map([X, X[:2], X])
        next(failing)
        with pytest.raises(InputError):
            next(failing)
        left = runners.map([X] * 20)
    with pytest.raises(RunError, match="closed"):
        list(left)


def test_more_runners_make_room_in_the_same_engine(module: trtcache.CompiledModule) -> None:
    """Its library is loaded once, and an engine that has room stays as it is."""
    module.runners(1)
    one = module._swap.engine
    assert isinstance(one, ParallelEngine)
    module.runners(3)
    three = module._swap.engine
    assert isinstance(three, ParallelEngine)
    assert three is not one
    assert three._package.library is one._package.library
    module.runners(2)
    assert module._swap.engine is three


def test_an_engine_that_cannot_says_why_and_its_calls_run_in_turn(
    engines: Path, interpreter: str, module: trtcache.CompiledModule
) -> None:
    """Other backends' engines, and programs that change their own weights."""
    other = trtcache.compile(Affine(1.0), (X,), cache=engines, backend=interpreter)
    with other.runners(2) as runners:
        assert "does not support it" in str(runners.report)
        assert torch.equal(runners.submit(X).result(60)[0], other(X)[0])
    engine = module._swap.engine
    assert parallel_engine(engine, 2, changes_weights=True) == (engine, "calls change the module's buffers")


def test_a_package_that_needs_torchs_loader_says_so(module: trtcache.CompiledModule, tmp_path: Path) -> None:
    """By the description of operators beside its library, and so does one with no library."""
    import zipfile

    engine = module._swap.engine
    assert isinstance(engine, PackageEngine)
    for names, why in ((["model/a.so", "model/a.json"], "only torch's loader"), ([], "it has 0 libraries")):
        with zipfile.ZipFile(tmp_path / "package", "w") as archive:
            for name in names:
                archive.writestr(name, b"")
        with pytest.raises(IncompatibleEngineError, match=why):
            PackageLibrary((tmp_path / "package").read_bytes())
    (tmp_path / "package").unlink()
    with zipfile.ZipFile(tmp_path / "package", "w") as archive:
        archive.writestr("model/a.so", b"no library")
    with pytest.raises(IncompatibleEngineError, match="cannot be loaded"):
        PackageLibrary((tmp_path / "package").read_bytes())


def test_what_a_container_refuses_is_an_error_with_its_words(module: trtcache.CompiledModule) -> None:
    """A constant that nobody has, and a failure of a C function."""
    engine = module._swap.engine
    assert isinstance(engine, PackageEngine)
    with pytest.raises(IncompatibleEngineError, match=r"needs constants that are missing: \['w0'"):
        Container(engine._package.library, {}, 1)
    container = Container(engine._package.library, engine._shared, 1)
    with pytest.raises(RunError, match=r"running aot_inductor: GetConstantName: \S"):
        container._text("AOTInductorModelContainerGetConstantName", 1000)


def test_a_fork_has_a_container_of_its_own(module: trtcache.CompiledModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known by the number of its process."""
    engine = module._swap.engine
    assert isinstance(engine, PackageEngine)
    here = ProcessContainer(lambda: Container(engine._package.library, engine._shared, 1))
    first = here()
    assert here() is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert here() is here() is not first


def test_a_fork_answers_and_a_process_ends_with_calls_under_way(run_python: Callable[..., Any], engines: Path) -> None:
    """In the fork of a process whose runners are busy; at the end, what was submitted is finished."""
    code = """
    import os, signal, sys, torch, trtcache
    from tests.models import Affine
    x = torch.randn(3, 4)
    module = trtcache.compile(Affine(1.0), (x,))
    runners = module.runners(2, intra=1)
    before = runners.submit(x).result()
    futures = [runners.submit(x) for _ in range(2000)]
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same = torch.equal(runners.submit(x).result()[0], before[0]) and torch.equal(module(x)[0], before[0])
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    last = [runners.submit(x) for _ in range(500)][-1]
    last.add_done_callback(lambda future: print("finished", flush=True))
    raise RuntimeError("a caller's own")
    """
    done = run_python(code, TRTCACHE_DIR=str(engines), TRTCACHE_FORBID_BUILD="1")
    assert (done.returncode, done.stdout) == (1, "finished\n"), done.stderr
    assert done.stderr.rstrip().endswith("RuntimeError: a caller's own")


def test_each_thread_has_the_number_that_was_asked_for(module: trtcache.CompiledModule) -> None:
    """New threads begin with the process's number, and that stays what it was."""
    before = torch.get_num_threads()
    barrier = threading.Barrier(2, timeout=60)

    def count() -> int:
        barrier.wait()
        return torch.get_num_threads()

    with Runners(count, RunnersReport(2, before + 1, "runners", cores=99)) as runners:
        assert [one.result(60) for one in [runners.submit(), runners.submit()]] == [before + 1] * 2
    new: list[int] = []
    thread = threading.Thread(target=lambda: new.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *new] == [before, before]


def test_more_threads_than_cores_are_a_warning_with_numbers(caplog: pytest.LogCaptureFixture) -> None:
    """And none where they fit."""
    with caplog.at_level(logging.WARNING):
        Runners(len, RunnersReport(2, 2, "runners", cores=4))
        assert not caplog.messages
        Runners(len, RunnersReport(2, 3, "OMP_NUM_THREADS", cores=4))
        Runners(len, RunnersReport(5, 1, "runners", cores=4))
    assert caplog.messages == [
        "2 runners with 3 threads each (OMP_NUM_THREADS) are 6 threads on 4 cores; runners(2, intra=2) fits",
        "5 runners with 1 threads each (runners) are 5 threads on 4 cores; runners(4, intra=1) fits",
    ]


def test_cores_are_shared_out_where_nobody_chose_a_number() -> None:
    """A number that somebody chose is kept, and one given to runners is over it."""
    unsaid = EffectiveThreads(8, "cores", 8, "cores", cores=8)
    said = EffectiveThreads(3, "OMP_NUM_THREADS", 2, "cores", cores=8)
    assert (report_on(4, None, unsaid, "").intra, report_on(4, None, unsaid, "").intra_from) == (2, "cores / runners")
    assert (report_on(16, None, unsaid, "").intra, report_on(4, None, said, "").intra) == (1, 3)
    assert report_on(4, 5, said, "").intra_from == "runners"


@pytest.mark.parametrize("wrong", [{"count": 0}, {"intra": 0}, {"count": 1.0}], ids=["none", "no_threads", "float"])
def test_an_impossible_number_of_runners_is_an_error(module: trtcache.CompiledModule, wrong: dict[str, Any]) -> None:
    """Before anything is loaded or started."""
    with pytest.raises(SettingsError, match="expected a positive integer"):
        module.runners(**wrong)


def test_without_a_number_there_are_as_many_runners_as_threads_says(module: trtcache.CompiledModule) -> None:
    """``inter`` is how many, and ``intra`` how many threads each has."""
    with trtcache.threads(intra=1, inter=3):
        report = module.runners().report
    assert (report.runners, report.intra, report.intra_from) == (3, 1, "trtcache.threads")

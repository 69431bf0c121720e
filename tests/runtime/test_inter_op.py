"""Parts of one call side by side: their order, errors, torch's state of a thread, and numbers of threads."""

from __future__ import annotations

import linecache
import logging
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import torch

from trtcache.config import threads as thread_counts
from trtcache.config.threads import EffectiveThreads, Threads
from trtcache.runtime import parallel as inter_op
from trtcache.runtime.parallel import Call, InterOp, Precedence, TorchState, WorkerPool
from trtcache.runtime.verify import AutocastState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

PLAIN = TorchState(inference=False, autocast=AutocastState((), cached=True))
WAIT_S = 60


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """Three threads that help a caller."""
    made = WorkerPool(3, 4, 1)
    yield made
    made.close()


def finish(
    pool: WorkerPool,
    order: Precedence,
    run: Callable[[int], None],
    state: TorchState = PLAIN,
    took_s: dict[int, float] | None = None,
) -> list[int]:
    """Run a call and return its parts in the order in which they were done."""
    done: list[int] = []
    Call(order, run, done.append, state, took_s or {}).finish(pool)
    return done


def side_by_side(parts: int) -> Callable[[int], None]:
    """Return what a part does that ends only when so many are under way."""
    barrier = threading.Barrier(parts)

    def run(_: int) -> None:
        barrier.wait(WAIT_S)

    return run


def test_parts_wait_for_those_that_they_take_from_and_for_their_turn() -> None:
    """A chain has one part at a time, and parts that need nothing of each other have all."""
    chain = Precedence.of([(), (0,), (1,)], [])
    assert (chain.before, chain.after, chain.at_once) == ((0, 1, 1), ((1,), (2,), ()), 1)
    towers = Precedence.of([(), (), (), (), (0, 1, 2, 3)], [])
    assert (towers.before, towers.after[0], towers.at_once) == ((0, 0, 0, 0, 4), (4,), 4)
    turned = Precedence.of([(), (), (), (0, 1, 2)], [(0, 1, 2), (3,), ()])
    assert (turned.after, turned.at_once) == (((1, 3), (2, 3), (3,), ()), 1)
    assert Precedence.of([], []).at_once == 1


def test_parts_that_need_nothing_of_each_other_run_at_once(pool: WorkerPool) -> None:
    """Four parts of which each waits for the other three; after them the one that takes from all."""
    order = Precedence.of([(), (), (), (), (0, 1, 2, 3)], [])
    meet = side_by_side(4)
    assert finish(pool, order, lambda number: meet(number) if number < 4 else None)[-1] == 4


def test_the_callers_thread_runs_parts_too() -> None:
    """One helper and the caller make two."""
    pool = WorkerPool(1, 2, 1)
    assert sorted(finish(pool, Precedence.of([(), ()], []), side_by_side(2))) == [0, 1]
    pool.close()
    assert finish(pool, Precedence.of([(), (), (0, 1)], []), lambda _: None) == [0, 1, 2]  # nobody helps any more


def test_the_longest_way_comes_first() -> None:
    """By what parts have taken, with what comes after them; in their order as long as that is not known."""
    pool = WorkerPool(1, 2, 1)
    pool.close()
    order = Precedence.of([(), (), (), (1,)], [])
    assert finish(pool, order, lambda _: None) == [0, 1, 2, 3]
    assert order.remaining_s({0: 1, 1: 2, 2: 4, 3: 3}) == [1, 5, 4, 3]
    assert finish(pool, order, lambda _: None, PLAIN, {0: 1, 1: 2, 2: 4, 3: 3}) == [1, 2, 3, 0]


def test_every_part_runs_once_and_after_what_it_needs(pool: WorkerPool) -> None:
    """In graphs of all kinds, with callers that share the helpers."""
    draw = random.Random(0)

    def call(size: int) -> bool:
        needs = [draw.sample(range(number), draw.randint(0, min(number, 3))) for number in range(size)]
        done = finish(pool, Precedence.of(needs, []), lambda _: None)
        places = {number: place for place, number in enumerate(done)}
        ordered = all(places[other] < places[number] for number, one in enumerate(needs) for other in one)
        return ordered and sorted(done) == list(range(size))

    with ThreadPoolExecutor(6) as callers:
        assert all(callers.map(call, [draw.randint(1, 12) for _ in range(600)], timeout=WAIT_S))


@pytest.mark.parametrize("failing", [{0}, {2}, {1, 2}, {4}], ids=["first", "third", "two", "last"])
def test_an_error_of_a_part_is_the_calls_once_nothing_is_under_way(pool: WorkerPool, failing: set[int]) -> None:
    """That of the first part, if several raise; what comes after it is not begun, and the next call is as ever."""
    order = Precedence.of([(), (), (), (), (0, 1, 2, 3)], [])
    meet, begun, under_way = side_by_side(4), list[int](), set[int]()

    def run(number: int) -> None:
        begun.append(number)
        under_way.add(number)
        if number < 4:
            meet(number)
        under_way.remove(number)
        if number in failing:
            raise ValueError(number)

    with pytest.raises(ValueError, match=f"^{min(failing)}$"):
        finish(pool, order, run)
    assert not under_way
    assert sorted(begun) == ([0, 1, 2, 3, 4] if failing == {4} else [0, 1, 2, 3])
    assert finish(pool, order, lambda _: None)[-1] == 4


def test_an_interrupt_of_the_caller_waits_for_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raised while it waited is raised, and no part goes on behind its back."""
    pool, begun, leave, ended = WorkerPool(1, 2, 1), threading.Event(), threading.Event(), list[int]()

    def run(number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(WAIT_S)
            return
        begun.set()
        assert leave.wait(WAIT_S)
        ended.append(number)

    call = Call(Precedence.of([(), (), (0, 1)], []), run, lambda _: None, PLAIN, {})
    wait = call._change.wait

    def interrupted(timeout: float | None = None) -> bool:
        if leave.is_set():
            return wait(timeout)
        leave.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(call._change, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call.finish(pool)
    assert len(ended) == 1
    pool.close()


class Interrupt:
    """Interrupts a thread before a line of the file under test.

    Not before that of a ``with``, to which tracing comes again at the end of its block: Python does not, with a lock.
    """

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if frame.f_code.co_filename != inter_op.__file__:
            return None
        here = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event != "line" or here.startswith("with "):
            return self
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return self

    def during(self, work: Callable[[], object]) -> bool:
        """Do some work in a thread, and say whether it came to its end, interrupted or not."""

        def traced() -> None:
            sys.settrace(self)
            with suppress(KeyboardInterrupt):
                work()

        thread = threading.Thread(target=traced, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        return not thread.is_alive()


def test_no_interrupt_of_the_caller_is_waited_for_for_ever() -> None:
    """Before whichever line it comes, helpers end their parts and the call ends."""
    pool, order = WorkerPool(1, 2, 1), Precedence.of([(), (), (0, 1), (2,), (2,)], [])

    def call() -> None:
        helped = threading.Event()

        def run(_: int) -> None:
            if threading.current_thread().name.startswith("trtcache-part"):
                helped.set()
                time.sleep(0.003)  # the caller is done first
            else:
                assert helped.wait(WAIT_S)

        finish(pool, order, run)

    interrupts = [Interrupt(line) for line in range(1, 100)]
    assert all(interrupt.during(call) for interrupt in interrupts)
    assert not interrupts[70].left
    pool.close()


def test_an_interrupt_while_threads_begin_lets_them_end() -> None:
    """The end of the interpreter would wait for them."""
    before = set(threading.enumerate())
    interrupts = [Interrupt(line) for line in range(1, 20)]
    assert all(interrupt.during(lambda: WorkerPool(2, 3, 1).close()) for interrupt in interrupts)
    begun = set(threading.enumerate()) - before
    for thread in begun:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in begun)


def _state() -> tuple[object, ...]:
    on = torch.is_autocast_enabled("cpu")
    autocast = (torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()) if on else None
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast


@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference"])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16], ids=["off", "bf16", "fp16"])
def test_every_thread_is_in_the_callers_state(pool: WorkerPool, inference: bool, autocast: torch.dtype | None) -> None:
    """No gradients, inference mode, autocast, what ``trtcache.threads`` says; and a number of intra-op threads."""
    found, meet = list[object](), side_by_side(4)

    def run(number: int) -> None:
        meet(number)
        found.append((_state(), thread_counts.current()))

    casting = torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None, cache_enabled=False)
    with torch.inference_mode(inference), torch.no_grad(), casting, thread_counts.threads(inter=4):
        here = _state()
        state = TorchState.here()
        assert state is not None
        finish(pool, Precedence.of([()] * 4, []), run, state)
    assert found == [(here, Threads(None, 4))] * 4


def test_modes_that_look_on_are_for_the_callers_thread_alone() -> None:
    """Other threads cannot have them, so parts run in turn."""
    from torch.utils.flop_counter import FlopCounterMode

    assert TorchState.here() == PLAIN
    with torch.device("meta"):
        assert TorchState.here() is None
    with FlopCounterMode(display=False):
        assert TorchState.here() is None


def test_helpers_have_the_callers_number_of_threads_or_a_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share where nobody chose; the process's own number, with which new threads begin, stays what it was."""
    before = torch.get_num_threads()
    inter_op = InterOp(Threads())
    assert inter_op.pool(4) is None
    with thread_counts.threads(intra=2, inter=3):
        made = inter_op.pool(4)
        assert made is not None
        assert (made.inter, made.intra) == (3, 2)
        assert inter_op.pool(9) is made
        assert inter_op.pool(1) is None
        found, meet = list[int](), side_by_side(3)

        def run(number: int) -> None:
            meet(number)
            found.append(torch.get_num_threads())

        finish(made, Precedence.of([()] * 3, []), run)
        assert found == [2] * 3
    new: list[int] = []
    thread = threading.Thread(target=lambda: new.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *new] == [before, before]
    monkeypatch.setattr(
        thread_counts, "effective_threads", lambda _: EffectiveThreads(8, "cores", 2, "settings.threads", 8)
    )
    shared = InterOp(Threads(inter=2), calls=2).pool(4)
    assert shared is not None
    assert (shared.inter, shared.intra) == (2, 2)


def test_more_threads_than_cores_are_a_warning_with_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for the same numbers, and none where they fit."""
    monkeypatch.setattr(thread_counts, "cores", lambda: 4)
    inter_op = InterOp(Threads())
    with caplog.at_level(logging.WARNING):
        with thread_counts.threads(intra=2, inter=2):
            inter_op.pool(4)
        with thread_counts.threads(intra=2, inter=3):
            inter_op.pool(4)
            inter_op.pool(4)
    expected = "3 parts at once with 2 threads each (trtcache.threads) are 6 threads on 4 cores; "
    assert caplog.messages == [f"{expected}trtcache.threads(intra=1, inter=3) fits"]


def test_parts_run_in_turn_where_there_can_be_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the interpreter, or where the system gives none."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert InterOp(Threads(inter=2)).pool(2) is None

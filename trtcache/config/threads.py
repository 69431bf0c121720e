"""Thread counts: intra-op threads of a call, calls that run concurrently, and the origin of each number.

torch has a thread count for each calling thread: a new thread starts with the process's count, not with that of the
thread that started it. So a chosen count is set in every thread that should use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from threading import Lock, RLock, Thread
from typing import Any, TypeVar
from weakref import WeakSet

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import dataclass_from
from trtcache.errors import SettingsError

T = TypeVar("T")

VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables that torch reads at startup; the first one set wins: torch queries MKL, and MKL queries OpenMP."""

CHOSEN = "trtcache.threads"
SETTINGS = "settings.threads"
_TORCH = "torch.set_num_threads"


@frozen_dataclass
class Threads:
    """Thread counts; None leaves a count to torch.

    Attributes:
        intra: intra-op threads of one call.
        inter: calls that run concurrently where the caller does not specify it (``CompiledModule.runners``), and
            partitions of one call that do; if None, partitions run one after the other.
    """

    intra: int | None = None
    inter: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (type(value) is not int or value < 1):
                raise SettingsError(f"threads[{field.name!r}]", f"expected a positive integer, got {value!r}")

    @classmethod
    def of(cls, given: object) -> Threads:
        """Return thread counts from a ``Threads`` or a mapping of field names."""
        return dataclass_from(cls, given, SETTINGS)

    def over(self, other: Threads) -> Threads:
        """Return these counts, with the other's where these are None."""
        return Threads(self.intra or other.intra, self.inter or other.inter)


_UNSET = Threads()
_INITIALIZING: dict[int, Lock] = {}
_chosen: ContextVar[Threads] = ContextVar("trtcache_threads", default=_UNSET)


@frozen_dataclass
class EffectiveThreads:
    """Effective thread counts in a thread, and the origin of each.

    Attributes:
        intra: intra-op threads of one call.
        intra_from: ``trtcache.threads``, ``settings.threads``, ``torch.set_num_threads``, a variable, or ``cores``.
        inter: concurrent calls.
        inter_from: likewise; ``cores`` is as many as fit on the cores.
        cores: cores available to this process.
    """

    intra: int
    intra_from: str
    inter: int
    inter_from: str
    cores: int


@contextmanager
def threads(*, intra: int | None = None, inter: int | None = None) -> Iterator[Threads]:
    """Set thread counts for this thread while the block runs, over ``settings.threads`` and the environment.

    Threads started in the block begin with ``intra`` too; other threads are not affected.
    """
    import torch

    chosen = Threads(intra, inter).over(_chosen.get())
    token, before = _chosen.set(chosen), torch.get_num_threads()
    try:
        if intra is not None:
            torch.set_num_threads(intra)
        yield chosen
    finally:
        if intra is not None:
            torch.set_num_threads(before)
        _chosen.reset(token)


def current() -> Threads:
    """Return the counts set by ``threads`` in this thread."""
    return _chosen.get()


def initialize(intra: int, inter: int | None = None) -> None:
    """Set the counts of a new thread for its lifetime.

    torch also makes the first of them the process's count, with which new threads begin, so another thread restores
    that. Only one thread does this at a time: another would take this count for the process's.
    """
    import torch

    with _INITIALIZING.setdefault(os.getpid(), Lock()):  # a fork may inherit a lock
        before = torch.get_num_threads()
        if before != intra:
            torch.set_num_threads(intra)
            with suppress(RuntimeError):  # the interpreter is shutting down and starts no threads
                thread = Thread(target=torch.set_num_threads, args=(before,))
                thread.start()
                thread.join()
    _chosen.set(Threads(intra, inter))


def run_with(intra: int, call: Callable[[Any], T], argument: Any) -> T:
    """Return ``call(argument)``, run with ``intra`` threads unless ``threads`` sets another count."""
    import torch

    before = torch.get_num_threads()
    if before == intra or _chosen.get().intra is not None:
        return call(argument)
    torch.set_num_threads(intra)
    try:
        return call(argument)
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def effective_threads(settings: Threads = _UNSET) -> EffectiveThreads:
    """Return the effective counts in this thread; ``threads`` overrides ``settings`` and the rest."""
    import torch

    chosen, available = _chosen.get(), cores()
    if intra := chosen.intra or settings.intra:
        intra_from = CHOSEN if chosen.intra else SETTINGS
    else:
        intra = torch.get_num_threads()
        intra_from = origin(intra, os.environ, cores=available, mkl=torch._C.has_mkl)
    if inter := chosen.inter or settings.inter:
        inter_from = CHOSEN if chosen.inter else SETTINGS
    else:
        # By default runners have one thread each, which maximizes throughput.
        inter, inter_from = available if intra_from == "cores" else max(1, available // intra), "cores"
    return EffectiveThreads(intra, intra_from, inter, inter_from, available)


def origin(number: int, environ: Mapping[str, str], *, cores: int, mkl: bool) -> str:
    """Return the origin of torch's thread count: ``torch.set_num_threads``, a variable, or ``cores``.

    MKL accepts fewer threads than there are cores from a variable, never more; a core with two hardware threads counts
    once. If ``torch.set_num_threads`` set the same number as a variable, the variable is returned.
    """
    for variable in VARIABLES if mkl else VARIABLES[1:]:
        wanted = environ.get(variable, "").partition(",")[0].strip()
        if wanted.isdecimal() and int(wanted) > 0:
            expected = {int(wanted), *(_of_cores(cores) if mkl and int(wanted) >= min(_of_cores(cores)) else ())}
            return variable if number in expected else _TORCH
    return "cores" if number in _of_cores(cores) else _TORCH


def _of_cores(cores: int) -> set[int]:
    """Return the possible default thread counts for a number of hardware threads: one each, or one for two."""
    return {cores, max(1, cores // 2)}


def fork_safe_lock() -> Any:
    """Return a reentrant lock that a forked process does not find locked by a thread that it does not have."""
    lock = RLock()
    _locks().add(lock)
    return lock


@cache
def _locks() -> WeakSet[Any]:
    locks: WeakSet[Any] = WeakSet()

    def open_all() -> None:
        for lock in locks:
            if not lock._is_owned():  # the thread that forked keeps its own; threading.Condition asks so, too
                lock._at_fork_reinit()

    os.register_at_fork(after_in_child=open_all)
    return locks

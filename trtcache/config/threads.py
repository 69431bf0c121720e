"""How many threads work on a call, how many calls run side by side, and who said so.

torch counts threads for each thread that calls it: a new one begins with the process's number, whatever the thread that
started it has. So a number that was chosen is set in every thread that is to have it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from trtcache.config.named_fields import dataclass_from
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""What torch looks at when it starts, the first that is set: MKL is asked, and MKL asks OpenMP."""

CHOSEN = "trtcache.threads"
SETTINGS = "settings.threads"
_TORCH = "torch.set_num_threads"


@dataclass(frozen=True, slots=True)
class Threads:
    """Numbers of threads; None leaves a number to what torch says.

    Attributes:
        intra: threads that work on one call together.
        inter: calls that run side by side where nobody says how many (``CompiledModule.runners``), and parts of one
            call that do; where it is None parts run one after the other.
    """

    intra: int | None = None
    inter: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and (type(value) is not int or value < 1):
                raise SettingsError(f"threads[{one.name!r}]", f"expected a number from 1, got {value!r}")

    @classmethod
    def of(cls, given: object) -> Threads:
        """Return numbers from numbers or from a mapping of their names.

        Raises:
            SettingsError: a name is unknown (with the nearest one), or a value is no number from 1.
        """
        return dataclass_from(cls, given, SETTINGS)

    def over(self, other: Threads) -> Threads:
        """Return these numbers, with the other's where these say nothing."""
        return Threads(self.intra or other.intra, self.inter or other.inter)


_UNSAID = Threads()
_BEGINNING: dict[int, Lock] = {}
_chosen: ContextVar[Threads] = ContextVar("trtcache_threads", default=_UNSAID)


@dataclass(frozen=True, slots=True)
class InForce:
    """The numbers in force in a thread, and where each comes from.

    Attributes:
        intra: threads that work on one call together.
        intra_from: ``trtcache.threads``, ``settings.threads``, ``torch.set_num_threads``, a variable, or ``cores``.
        inter: calls side by side.
        inter_from: likewise; ``cores`` is as many as the cores have room for.
        cores: those that this process may use.
    """

    intra: int
    intra_from: str
    inter: int
    inter_from: str
    cores: int


@contextmanager
def threads(*, intra: int | None = None, inter: int | None = None) -> Iterator[Threads]:
    """Set numbers of threads for this thread, over ``settings.threads`` and the environment, while the block runs.

    Threads that the block starts begin with ``intra`` as well; others keep what they have.

    Raises:
        SettingsError: a value is no number from 1.
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
    """Return what ``threads`` says in this thread."""
    return _chosen.get()


def begin(intra: int, inter: int | None = None) -> None:
    """Set the numbers of a thread that has just begun, for as long as it lives.

    torch makes the first the process's number as well, with which new threads begin; so another thread puts that one
    back. One thread begins at a time: another beginner would take this number for the process's.
    """
    import torch

    with _BEGINNING.setdefault(os.getpid(), Lock()):  # in a fork the parent's may be locked for ever
        before = torch.get_num_threads()
        if before != intra:
            torch.set_num_threads(intra)
            with suppress(RuntimeError):  # the interpreter is ending and starts no threads
                thread = Thread(target=torch.set_num_threads, args=(before,))
                thread.start()
                thread.join()
    _chosen.set(Threads(intra, inter))


def run_with(intra: int, call: Callable[[Any], T], argument: Any) -> T:
    """Return ``call(argument)``, run with ``intra`` threads unless ``threads`` says another number."""
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
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_force(settings: Threads = _UNSAID) -> InForce:
    """Return the numbers in force in this thread, with ``settings`` below ``threads`` and above everything else."""
    import torch

    said, available = _chosen.get(), cores()
    if intra := said.intra or settings.intra:
        intra_from = CHOSEN if said.intra else SETTINGS
    else:
        intra = torch.get_num_threads()
        intra_from = origin(intra, os.environ, cores=available, mkl=torch._C.has_mkl)
    if inter := said.inter or settings.inter:
        inter_from = CHOSEN if said.inter else SETTINGS
    else:
        # Where nobody chose, runners have one thread each: the most calls in a second.
        inter, inter_from = available if intra_from == "cores" else max(1, available // intra), "cores"
    return InForce(intra, intra_from, inter, inter_from, available)


def origin(number: int, environ: Mapping[str, str], *, cores: int, mkl: bool) -> str:
    """Return who gave torch this number: a call of its own, a variable, or nobody.

    MKL lets a variable say fewer threads than there are cores and never more; a core with two hardware threads counts
    once. What a call set to the very number of a variable is taken for the variable's.
    """
    for variable in VARIABLES if mkl else VARIABLES[1:]:
        wanted = environ.get(variable, "").partition(",")[0].strip()
        if wanted.isdecimal() and int(wanted) > 0:
            expected = {int(wanted), *(_of_cores(cores) if mkl and int(wanted) >= min(_of_cores(cores)) else ())}
            return variable if number in expected else _TORCH
    return "cores" if number in _of_cores(cores) else _TORCH


def _of_cores(cores: int) -> set[int]:
    """Return how many threads torch may take for so many hardware threads: one each, or one for two."""
    return {cores, max(1, cores // 2)}

"""Measurement of a compiled module's latency and throughput over numbers of intra-op threads and runners.

A *cell* is one pair of numbers. Cells take turns, so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.config import threads as thread_counts
from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import percentile
from trtcache.errors import InputError
from trtcache.lowering.interface import Interface, TensorInput, evaluate
from trtcache.runtime.checks import bind

if TYPE_CHECKING:
    from trtcache.runtime.module import CompiledModule
    from trtcache.runtime.module_call import CallSignature

ROUNDS = 3
"""Turns of each cell."""

_WARM_SHARE = 0.2
"""Warm-up before a turn, as a share of it."""

_LEAST_CALLS = 2
"""Minimum number of calls, however long one takes."""


@frozen_dataclass
class Effort:
    """How long to measure a cell: in seconds, or in calls if ``calls`` is set."""

    seconds: float = 3.0
    calls: int | None = None

    def of_a_turn(self) -> Effort:
        """Return the effort of one turn."""
        return Effort(self.seconds / ROUNDS, None if self.calls is None else -(-self.calls // ROUNDS))

    @property
    def warm_up(self) -> Effort:
        """The effort of the warm-up."""
        return Effort(self.seconds * _WARM_SHARE, None if self.calls is None else math.ceil(self.calls * _WARM_SHARE))


@dataclass(slots=True)
class Cell:
    """The measurements for one number of threads and runners.

    Attributes:
        threads: intra-op threads of each call.
        runners: concurrent calls; 1 is a plain loop.
        skipped: why it was not measured, or empty.
        latencies_s: seconds of each call, from submission to its outputs.
        elapsed_s: wall-clock seconds of all calls.
    """

    threads: int
    runners: int
    skipped: str = ""
    latencies_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def median_s(self) -> float:
        """The median latency."""
        return statistics.median(self.latencies_s)

    @property
    def p95_s(self) -> float:
        """The 95th percentile of latency."""
        return percentile(sorted(self.latencies_s), 95)

    @property
    def calls_per_s(self) -> float:
        """Throughput of all runners."""
        return len(self.latencies_s) / self.elapsed_s


def grid(threads: Sequence[int], runners: Sequence[int], *, cores: int) -> list[Cell]:
    """Return a cell for each pair of numbers; pairs that need more than the cores are skipped."""
    cells = []
    for count in dict.fromkeys(runners):
        for intra in dict.fromkeys(threads):
            wanted = intra * count
            cells.append(Cell(intra, count, f"{wanted} threads are more than {cores} cores" if wanted > cores else ""))
    return cells


def fastest(cells: Sequence[Cell]) -> Cell:
    """Return the cell with the lowest median latency."""
    return min((one for one in cells if not one.skipped), key=lambda one: one.median_s)


def busiest(cells: Sequence[Cell]) -> Cell:
    """Return the cell with the highest throughput."""
    return max((one for one in cells if not one.skipped), key=lambda one: one.calls_per_s)


def measure(
    module: CompiledModule,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cells: Sequence[Cell],
    *,
    effort: Effort,
    on_turn: Callable[[Cell], None] = lambda _: None,
) -> None:
    """Measure the cells that are not skipped, in turns, and add the results to them.

    Args:
        module: the module to call.
        args: positional arguments of each call.
        kwargs: keyword arguments of each call.
        cells: the cells to measure.
        effort: how long to measure a cell.
        on_turn: called with a cell after each of its turns.

    Raises:
        InputError: the arguments do not match the module.
    """
    module(*args, **kwargs)
    measured = [cell for cell in cells if not cell.skipped]
    if most := max((cell.runners for cell in measured), default=0):
        module.runners(most, intra=1).close()  # allocate for all of them once
    for _ in range(ROUNDS):
        for cell in measured:
            measure_turn(module, args, kwargs, cell, effort.of_a_turn())
            on_turn(cell)


def measure_turn(
    module: CompiledModule, args: tuple[Any, ...], kwargs: Mapping[str, Any], cell: Cell, effort: Effort
) -> None:
    """Measure one turn of a cell after a warm-up, and add the results to it.

    On a GPU a call returns before its outputs are computed, so each is followed by a synchronization.
    """
    is_on_gpu = any(one.device == "cuda" for one in module.interface.inputs)

    def synchronize() -> None:
        if is_on_gpu:
            torch.cuda.synchronize()

    def call_module() -> None:
        module(*args, **kwargs)
        synchronize()

    if cell.runners == 1:
        with thread_counts.threads(intra=cell.threads):
            found = _time_warm_calls(call_module, effort, 1)
    else:
        with module.runners(cell.runners, intra=cell.threads) as runners:

            def call_runner() -> None:
                runners.submit(*args, **kwargs).result()
                synchronize()

            found = _time_warm_calls(call_runner, effort, cell.runners)
    cell.latencies_s += found[0]
    cell.elapsed_s += found[1]


def _time_warm_calls(call: Callable[[], object], effort: Effort, callers: int) -> tuple[list[float], float]:
    _time_calls(call, effort.warm_up, callers)
    return _time_calls(call, effort, callers)


def _time_calls(call: Callable[[], object], effort: Effort, callers: int) -> tuple[list[float], float]:
    """Return the seconds of each call of all callers, and the wall-clock seconds of all."""
    start = threading.Barrier(callers)

    def loop() -> list[float]:
        start.wait()
        began_s = time.perf_counter()
        latencies_s: list[float] = []
        while not _is_done(effort, len(latencies_s) * callers, time.perf_counter() - began_s):
            before_s = time.perf_counter()
            call()
            latencies_s.append(time.perf_counter() - before_s)
        return latencies_s

    if callers == 1:
        before_s = time.perf_counter()
        return loop(), time.perf_counter() - before_s
    with ThreadPoolExecutor(callers) as pool:
        before_s = time.perf_counter()
        found = [one.result() for one in [pool.submit(loop) for _ in range(callers)]]
        elapsed_s = time.perf_counter() - before_s
    return [one for latencies_s in found for one in latencies_s], elapsed_s


def _is_done(effort: Effort, calls: int, took_s: float) -> bool:
    if effort.calls is not None:
        return calls >= effort.calls
    return calls >= _LEAST_CALLS and took_s >= effort.seconds


def sample(interface: Interface, call: CallSignature, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, Any]:
    """Create random float, zero integer and true boolean example arguments.

    Args:
        interface: the engine's interface.
        call: how arguments are flattened.
        shapes: shapes of arguments with dynamic sizes, by name as in errors: ``input_ids`` or ``states[0]``.

    Raises:
        InputError: sizes are missing or do not match, or an argument does not exist.
    """
    names = {one.leaf: call.label(one.leaf).removeprefix("argument ") for one in interface.inputs}
    if unknown := [name for name in shapes if name not in names.values()]:
        raise InputError("arguments", f"one of {', '.join(names.values())}", unknown[0])
    sizes: dict[int, int] = {}
    for one in interface.inputs:
        given = shapes.get(names[one.leaf])
        _match(one, (*given, 0) if given is not None and one.number else given, names[one.leaf], sizes)
    for one in interface.inputs:
        _compare(one, shapes.get(names[one.leaf]), names[one.leaf], sizes)
    leaves: dict[int, Any] = {value.leaf: value.value for value in interface.values}
    tensors = {one.leaf: _tensor(one, names[one.leaf], sizes, interface) for one in interface.inputs}
    leaves |= {one.leaf: tensors[one.leaf].shape[0] if one.number else tensors[one.leaf] for one in interface.inputs}
    spec = call.in_spec
    args, kwargs = pytree.tree_unflatten([leaves[leaf] for leaf in range(spec.num_leaves)], spec)
    return args, kwargs


def _match(spec: TensorInput, given: tuple[int, ...] | None, name: str, sizes: dict[int, int]) -> None:
    """Record the sizes of a given shape."""
    if given is None:
        return
    text = "x".join(map(str, given))
    if len(given) != len(spec.shape):
        raise InputError(f"argument {name}", f"{len(spec.shape)} sizes", text)
    for written, size in zip(spec.shape, given, strict=True):
        if isinstance(written, dict):
            known = sizes.setdefault(int(str(written["sym"])), size)
            if known != size:
                raise InputError(f"argument {name}", f"the size {known} that another argument has", text)
        elif isinstance(written, int) and written != size:
            raise InputError(f"argument {name}", f"a size of {written}", text)
    bind(spec, SimpleNamespace(shape=given), sizes)


def _compare(spec: TensorInput, given: tuple[int, ...] | None, name: str, sizes: dict[int, int]) -> None:
    """Compare a given shape with sizes that are expressions of others, such as ``2 * half``."""
    for written, size in zip(spec.shape, given or (), strict=False):
        expected = evaluate(written, sizes)
        if expected is not None and expected != size:
            text = "x".join(map(str, given or ()))
            raise InputError(f"argument {name}", f"a size of {expected}, as other sizes say", text)


def _tensor(spec: TensorInput, name: str, sizes: Mapping[int, int], interface: Interface) -> torch.Tensor:
    shape = [evaluate(written, sizes) for written in spec.shape]
    known = [size for size in shape if size is not None]
    if len(known) != len(shape):
        wanted = "x".join("?" if size is None else str(size) for size in shape)
        raise InputError(f"argument {name}", "a number for each size that varies", wanted, f"say {name}=SIZES")
    for written, size in zip(spec.shape, known, strict=True):
        _check_range(written, size, name, interface)
    dtype = getattr(torch, spec.dtype)
    stride = [evaluate(step, sizes) for step in spec.stride]
    steps = [step for step in stride if step is not None]
    made = torch.empty_strided(known, steps, dtype=dtype, device=spec.device) if len(steps) == len(known) else None
    if made is None:
        made = torch.empty(known, dtype=dtype, device=spec.device)
    if dtype.is_floating_point or dtype.is_complex:
        return made.copy_(torch.randn(known, generator=torch.Generator().manual_seed(0)))
    return made.fill_(dtype is torch.bool)


def _check_range(written: object, size: int, name: str, interface: Interface) -> None:
    if not isinstance(written, dict):
        return
    least, most = interface.ranges[int(str(written["sym"]))]
    if size < (least or 0) or (most is not None and size > most):
        raise InputError(f"argument {name}", f"a size of {least or 0} to {'any' if most is None else most}", str(size))

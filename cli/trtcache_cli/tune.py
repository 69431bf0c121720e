"""``trtcache tune``: latency and throughput of a program over thread and runner counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtcache.errors import InputError, SettingsError
from trtcache.settings import FROZEN, PACKED, REFITTABLE, WEIGHTS
from trtcache_cli.backend_name import backend_option
from trtcache_cli.output import console, note, on_terminal, print_json, print_table, print_tsv, shows_progress, working
from trtcache_cli.output_file import check_output, open_output
from trtcache_cli.session import Session, examples, session_options
from trtcache_cli.setting_option import parse_settings, setting_option
from trtcache_cli.shapes import read_examples, script_shape_option

if TYPE_CHECKING:
    from trtcache.frontends.torchscript import Example
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.tuning import Cell

_PICTURES = (".png", ".svg", ".pdf")


class NumbersType(click.ParamType[tuple[int, ...]]):
    """Comma-separated positive integers."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse the numbers and drop duplicates."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            self.fail(f"{value!r} is not a comma-separated list of positive integers, such as 1,2,4", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


class SecondsType(click.FloatRange):
    """A finite number of seconds; click takes ``nan`` and ``inf`` for numbers of every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds, such as 3", param, ctx)
        return seconds


class WeightsType(click.ParamType[tuple[str, ...]]):
    """Comma-separated values of ``settings.weights``."""

    name = "weights"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Parse the values and drop duplicates."""
        if isinstance(value, tuple):
            return value
        parts = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
        if unknown := [part for part in parts if part not in WEIGHTS]:
            self.fail(f"{unknown[0]!r} is not one of {', '.join(WEIGHTS)}", param, ctx)
        return parts


@click.command(
    epilog=examples(
        "trtcache tune model.pt2",
        "trtcache tune model.pt2 --threads 1,2,4 --runners 1,2,4 -o tune.png",
        "trtcache tune model.pt2 --weights refittable,packed,frozen",
        "trtcache tune model.pt2 --shape input_ids=8x128 --json",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@click.option("--threads", type=NumbersType(), help="Intra-op threads of a call; by default 1, 2, 4 ... to the cores.")
@click.option("--runners", type=NumbersType(), help="Concurrent calls; by default 1, 2, 4 ... to the cores.")
@click.option(
    "--seconds",
    type=SecondsType(min=0, min_open=True),
    default=3.0,
    show_default=True,
    help="Measurement time of each cell.",
)
@click.option("--calls", type=click.IntRange(min=1), help="Measure this many calls per cell instead.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Draw the plot here (.png).")
@backend_option(help="The backend to measure.")
@setting_option
@click.option("--weights", "ways", type=WeightsType(), default=(), help="Compare engines with these settings.weights.")
@script_shape_option
@session_options
def tune(
    session: Session,
    file: Path,
    threads: tuple[int, ...] | None,
    runners: tuple[int, ...] | None,
    seconds: float,
    calls: int | None,
    output: Path | None,
    backend: str,
    settings: tuple[str, ...],
    ways: tuple[str, ...],
    shapes: tuple[str, ...],
) -> None:
    """Measure latency and throughput over intra-op threads and runners, and report the best.

    FILE: an exported program (.pt2), or a TorchScript file with a --shape for each argument. It is compiled, which
    builds its engine unless it is cached. A cell of the grid is a number of intra-op threads for each call and a number
    of concurrent calls; with one runner, calls are made one after the other. Cells take turns, each after warm-up
    calls. Combinations that need more threads than there are cores are skipped. With --weights the program is compiled
    in each of these ways as well, and they take turns with the threads of the lowest latency.
    """
    given = read_examples(shapes)
    if output is not None:
        _check_output(output)
    from trtcache.config.threads import cores
    from trtcache.runtime import tuning  # imports torch

    available = cores()
    steps = tuple(number for number in (1, 2, 4, 8, 16, 32, 64) if number <= available)
    cells = tuning.grid(threads or steps, runners or steps, cores=available)
    if all(cell.skipped for cell in cells):
        raise click.UsageError(f"all cells are skipped: {cells[0].skipped}; use fewer --threads or --runners")
    build = parse_settings(settings)
    module, args, kwargs = _compile(session, file, backend, build, given)
    others = {way: _compile(session, file, backend, {**build, "weights": way}, given)[0] for way in ways}
    no_threads = _why_no_threads(module)
    if no_threads:
        # Rows that differ in a number which nothing reads would differ by noise only.
        cells = tuning.grid((1,), runners or steps, cores=available)
        with module.runners(2) as two:
            if two.report.why_not:
                why = f"there is nothing to tune: {no_threads}, and calls run one after the other: {two.report.why_not}"
                raise SettingsError("tune", why)
    effort = tuning.Effort(seconds, calls)
    with _progress(file.name, tuning.ROUNDS * sum(not cell.skipped for cell in cells)) as show_cell:
        tuning.measure(module, args, kwargs, cells, effort=effort, on_turn=show_cell)
        compared = {way: tuning.Cell(tuning.fastest(cells).threads, 1) for way in ways}
        for way in tuning.ROUNDS * ways:
            tuning.measure_turn(others[way], args, kwargs, compared[way], effort.of_a_turn())
    why_not = _why_not(module, cells)
    if session.as_json:
        document = _document(file, module, cells, why_not, output, available)
        print_json(document | {"why_no_threads": no_threads, "compared": {way: _cell(compared[way]) for way in ways}})
    else:
        _print(cells, why_not, no_threads)
        note(f"weights: {_weights(module)}")
        _print_compared(compared)
    if output is not None:  # last: measurements are not lost if it cannot be written
        from trtcache_cli.tune_plot import draw

        with open_output(output) as temporary:
            draw(cells, temporary, title=file.name, form=output.suffix[1:])


def _check_output(output: Path) -> None:
    from importlib.util import find_spec

    if output.suffix not in _PICTURES:
        raise click.BadParameter(
            f"the suffix of {output.name} is not one of {', '.join(_PICTURES)}", param_hint="--output"
        )
    check_output(output)
    if find_spec("matplotlib") is None:
        raise click.BadParameter("drawing needs matplotlib: pip install 'trtcache[plot]'", param_hint="--output")


def _compile(
    session: Session, file: Path, backend: str, settings: dict[str, Any], given: dict[str, Example]
) -> tuple[CompiledModule, tuple[Any, ...], dict[str, Any]]:
    """Compile the program, and create arguments for it."""
    from trtcache import api
    from trtcache.frontends.onnx.file import is_onnx
    from trtcache.frontends.resolve import is_script_file
    from trtcache.frontends.torchscript import example_arguments, load_script
    from trtcache.runtime.tuning import sample

    if is_onnx(file):
        raise click.UsageError(f"{file} is an ONNX file; tune takes .pt2 and TorchScript files")
    script, cache = load_script(file) if is_script_file(file) else None, session.cache()
    with working(f"compiling {file.name}, unless it is cached"):
        if script is None:
            module = api.compile(file, backend=backend, cache=cache, settings=settings, on_miss="build")
        else:
            arguments = example_arguments(script, given)
            options: dict[str, Any] = {"backend": backend, "cache": cache, "settings": settings}
            module = api.compile(script, arguments, name=file.stem, on_miss="build", **options)
    shapes = {} if script is not None else {name: one.shape for name, one in given.items()}
    try:
        args, kwargs = sample(module._interface, module._signature, shapes)
    except InputError as error:
        why = f"an argument of {file.name} has other names or sizes" if shapes else "it leaves sizes open"
        raise click.BadParameter(f"{why}: {error}", param_hint="--shape") from error
    return module, args, kwargs


@contextmanager
def _progress(what: str, turns: int) -> Iterator[Callable[[Cell], None]]:
    """Show a bar, the current cell and the remaining time on a terminal."""
    if not shows_progress():
        note(f"measuring {what}")
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=turns)

        def show_cell(cell: Cell) -> None:
            progress.update(task, advance=1, description=f"{what}: threads {cell.threads}, runners {cell.runners}")

        yield show_cell


def _why_no_threads(module: CompiledModule) -> str:
    """Return why the number of threads of a call changes nothing; empty if it may change something."""
    from trtcache.backends import registry

    name, partitions = module.report.backend, module.report.partitions
    capabilities = registry.find(name, module._device.type).capabilities
    if capabilities.torch_threads or module.report.left or not partitions:
        return ""
    return f"engines of backend {name!r} have threads of their own, which trtcache.threads does not set"


def _why_not(module: CompiledModule, cells: Sequence[Cell]) -> str:
    """Return why runners are not concurrent; empty if they are, or if there is only one."""
    if all(cell.runners == 1 for cell in cells if not cell.skipped):
        return ""
    with module.runners(2, intra=1) as two:
        return two.report.why_not


def _print(cells: Sequence[Cell], why_not: str, no_threads: str = "") -> None:
    from trtcache.runtime.tuning import busiest, fastest

    best = {id(fastest(cells)): ["latency"]}
    best.setdefault(id(busiest(cells)), []).append("throughput")
    if on_terminal():
        rows = [_row(cell, ", ".join(best.get(id(cell), ()))) for cell in cells]
        print_table(("THREADS", "RUNNERS", "CALLS", "MEDIAN", "P95", "CALLS/S", "BEST FOR"), rows)
    else:
        print_tsv(_fields(cell, ",".join(best.get(id(cell), ()))) for cell in cells)
    if why_not:
        note(f"runners are not concurrent: {why_not}")
    if no_threads:
        note(f"only numbers of runners are measured: {no_threads}")
    for what, cell in (("latency", fastest(cells)), ("throughput", busiest(cells))):
        intra = "" if no_threads else f"intra={cell.threads}, "
        note(f"best for {what}: trtcache.threads({intra}inter={cell.runners})")


def _print_compared(cells: Mapping[str, Cell]) -> None:
    """Print the latency of each way to take weights, and its ratio to the first."""
    first = next(iter(cells.values()), None)
    for way, cell in cells.items():
        ratio = (
            "" if cell is first or first is None else f", {cell.median_s / first.median_s:.2f} of {next(iter(cells))}"
        )
        note(f"weights={way}: median {_milliseconds(cell.median_s)}, p95 {_milliseconds(cell.p95_s)}{ratio}")


def _row(cell: Cell, best: str) -> tuple[str, ...]:
    numbers = str(cell.threads), str(cell.runners)
    if cell.skipped:
        return (*numbers, "", "", "", "", f"skipped: {cell.skipped}")
    times = _milliseconds(cell.median_s), _milliseconds(cell.p95_s)
    return (*numbers, str(len(cell.latencies_s)), *times, f"{cell.calls_per_s:.1f}", best)


def _milliseconds(duration_s: float) -> str:
    return f"{duration_s * 1e3:.4g} ms"


def _fields(cell: Cell, best: str) -> tuple[object, ...]:
    if cell.skipped:
        return cell.threads, cell.runners, 0, None, None, None, f"skipped: {cell.skipped}"
    return cell.threads, cell.runners, len(cell.latencies_s), cell.median_s, cell.p95_s, cell.calls_per_s, best


def _document(
    file: Path, module: CompiledModule, cells: Sequence[Cell], why_not: str, output: Path | None, cores: int
) -> dict[str, Any]:
    from trtcache.runtime.tuning import busiest, fastest

    return {
        "file": str(file),
        "backend": module.report.backend,
        "cores": cores,
        "cells": [_cell(cell) for cell in cells],
        "best_latency": _cell(fastest(cells)),
        "best_throughput": _cell(busiest(cells)),
        "parallel": not why_not,
        "why_not": why_not,
        "output": str(output) if output else None,
        "weights": _weights(module),
    }


def _weights(module: CompiledModule) -> str:
    """Return whether the engines take other weights (``settings.weights``)."""
    partitions = module.report.partitions
    if any(partition.frozen for partition in partitions):
        return FROZEN
    return PACKED if any(partition.packed for partition in partitions) else REFITTABLE


def _cell(cell: Cell) -> dict[str, Any]:
    numbers = {"threads": cell.threads, "runners": cell.runners, "skipped": cell.skipped}
    if cell.skipped:
        return {**numbers, "calls": 0, "median_s": None, "p95_s": None, "calls_per_s": None}
    found = {"median_s": cell.median_s, "p95_s": cell.p95_s, "calls_per_s": cell.calls_per_s}
    return {**numbers, "calls": len(cell.latencies_s), **found}

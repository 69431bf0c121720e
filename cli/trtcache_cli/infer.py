"""``trtcache infer``: call a program in a file, and measure the latency of its calls."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from trtcache.config.units import format_duration, percentile
from trtcache.errors import InputError
from trtcache_cli.output import print_json, print_pairs
from trtcache_cli.output_file import check_output, open_output
from trtcache_cli.session import Session, examples, session_options

_PERCENTILES = (50, 90, 99)

_BFLOAT16_IN_NPY = "V2"
"""The dtype that a bfloat16 array has in a ``.npy`` file, whose format does not know it."""


@click.command(
    epilog=examples(
        "trtcache infer program.pt2 --trust local-file --input x=x.npy --output y.npy",
        "trtcache infer program.pt2 --input ids=ids.npy --input n=3 --repeat 100 --json",
    )
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "inputs",
    "-i",
    "--input",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument: a .npy file, or a number, text, true, false or null as JSON. Repeatable.",
)
@click.option(
    "outputs",
    "-o",
    "--output",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The .npy file of an output, in the order of the outputs. Repeatable.",
)
@click.option(
    "--repeat", type=click.IntRange(min=0), default=0, show_default=True, help="How many more calls to measure."
)
@click.option("--trust", help="local-file if you trust the file itself, or public keys as NAME:HEX.")
@session_options
def infer(
    session: Session,
    file: Path,
    inputs: tuple[str, ...],
    outputs: tuple[Path, ...],
    repeat: int,
    trust: str | None,
) -> None:
    """Call a program that 'trtcache export' wrote, and print how long it took.

    FILE: the program with its engines. NAME is an argument's name; positional ones are given by position from 0.
    torch is imported only if the program needs it.
    """
    arguments: dict[str, Any] = {}
    read = [file]
    for text in inputs:
        name, value = _split_input(text)
        if name in arguments:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--input")
        arguments[name] = _parse_value(value)
        if value.endswith(".npy"):
            read.append(Path(value))
    for place, path in enumerate(outputs):
        check_output(path, *read)
        # A device, such as /dev/null, may be given more than once.
        if path.resolve() in [each.resolve() for each in outputs[:place]] and (path.is_file() or not path.exists()):
            raise click.BadParameter(f"{path} is given twice", param_hint="--output")
    from trtcache.bundle.load import load

    start = time.perf_counter()
    cache = session.cache() if session.cache_dir is not None else None
    program = load(file, trust=trust, cache=cache)
    load_s = time.perf_counter() - start
    call = _bind_arguments(program, arguments)
    start = time.perf_counter()
    output = call()
    first_s = time.perf_counter() - start
    arrays = _arrays(_leaves(program, output))
    if len(outputs) > len(arrays):
        counts = f"{len(outputs)} files for {len(arrays)} output{'' if len(arrays) == 1 else 's'} of the program"
        raise click.BadParameter(counts, param_hint="--output")
    for path, array in zip(outputs, arrays, strict=False):
        _save(path, array)
    document = {
        "file": str(file),
        "name": program.report.name,
        "target": program.report.target,
        "torch": program.report.torch or "imported",
        "load_s": load_s,
        "first_s": first_s,
        "repeat": repeat,
        "latency_s": _percentiles(_measure(call, repeat)),
        "outputs": [
            {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "file": str(outputs[place]) if place < len(outputs) else None,
            }
            for place, array in enumerate(arrays)
        ],
    }
    if session.as_json:
        print_json(document)
    else:
        print_pairs(_summary_pairs(document))


def _split_input(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--input")
    return name, value


def _parse_value(value: str) -> Any:
    """Return the value of an argument.

    Raises:
        BadParameter: the file cannot be read.
    """
    if value.endswith(".npy"):
        import numpy as np

        try:
            array = np.load(value, allow_pickle=False)
        except (OSError, EOFError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise click.BadParameter(f"{value}: {why}", param_hint="--input") from error
        return _as_bfloat16(value, array) if array.dtype == _BFLOAT16_IN_NPY else array
    try:
        return json.loads(value)
    except ValueError:
        return value


def _as_bfloat16(name: str, array: Any) -> Any:
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        why = ".npy has no bfloat16 and stores it as 2-byte values (V2): install ml_dtypes to read them"
        raise click.BadParameter(f"{name}: {why}", param_hint="--input") from error
    return array.view(bfloat16)


def _needs_torch(program: Any) -> bool:
    # Compared by name: the class's module imports torch, which a program without it does not load.
    return type(program).__name__ == "CompiledModule"


def _bind_arguments(program: Any, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a call of a program with arguments, which become tensors if it is a module of torch."""
    from trtcache.runtime.checks import describe_value

    values = dict(arguments)
    if _needs_torch(program):
        values = {name: _tensor(name, value) if hasattr(value, "dtype") else value for name, value in values.items()}
    positions = sorted((name for name in values if name.isdecimal()), key=int)
    expected = [str(position) for position in range(len(positions))]
    if positions != expected:
        missing = next(position for position in expected if position not in positions)
        why = f"position {missing} is missing; given: {', '.join(positions)}"
        raise click.BadParameter(why, param_hint="--input")
    positional = [values.pop(name) for name in positions]

    def call() -> Any:
        try:
            return program(*positional, **values)
        except InputError as error:
            if error.where == "arguments":  # their number or their names
                error.hint = "give each with --input: by name, positional ones by position from 0: --input 0=x.npy"
            elif error.found in [describe_value(value) for value in arguments.values() if isinstance(value, str)]:
                was_text = "it was read as text: an array is a .npy file, other values are JSON, such as true"
                error.hint = f"{error.hint}; {was_text}" if error.hint else was_text
            raise

    return call


def _tensor(name: str, array: Any) -> Any:
    """Return a copy of an array as a tensor.

    Raises:
        BadParameter: torch does not have its dtype.
    """
    torch = sys.modules["torch"]
    if array.dtype.name == "bfloat16":  # which torch.from_numpy does not take
        return torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16)
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    except TypeError as error:
        why = f"{name!r} is an array of {array.dtype.name}, which torch does not have"
        raise click.BadParameter(why, param_hint="--input") from error


def _leaves(program: Any, output: Any) -> list[Any]:
    """Return the leaves of a program's output, in order."""
    if _needs_torch(program):
        # It knows torch's own classes of results, and classes that a library registers.
        from torch.utils import _pytree as pytree

        return list(pytree.tree_leaves(output))
    from trtcache.runtime.argument_order import flatten

    return flatten(output)[0]


def _arrays(leaves: Sequence[Any]) -> list[Any]:
    """Return the outputs that are arrays; numbers are arrays without dimensions, None and text are left out.

    Raises:
        ClickException: one is something else.
    """
    import numpy as np

    from trtcache.weights.arrays import array_of

    arrays = []
    for leaf in leaves:
        array = array_of(leaf)
        if array is not None:
            arrays.append(array.numpy())
        elif isinstance(leaf, (bool, int, float, complex)):
            arrays.append(np.asarray(leaf))
        elif leaf is not None and not isinstance(leaf, str):
            raise click.ClickException(f"an output has the type {type(leaf).__name__}, which is not an array")
    return arrays


def _save(path: Path, array: Any) -> None:
    import numpy as np

    with open_output(path) as temporary, temporary.open("wb") as file:  # np.save appends a suffix to names without one
        np.save(file, array)


def _measure(call: Callable[[], Any], repeat: int) -> list[float]:
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the minimum, percentiles and maximum of sorted latencies; empty without any."""
    if not seconds:
        return {}
    return {
        "min": seconds[0],
        **{f"p{percent}": percentile(seconds, percent) for percent in _PERCENTILES},
        "max": seconds[-1],
    }


def _summary_pairs(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    latencies = ", ".join(f"{name} {latency_s * 1e3:.2f} ms" for name, latency_s in document["latency_s"].items())
    outputs = [
        (
            f"output {place}",
            f"{output['dtype']} ({', '.join(map(str, output['shape']))})"
            + (f", {output['file']}" if output["file"] else ""),
        )
        for place, output in enumerate(document["outputs"])
    ]
    return [
        ("name", document["name"]),
        ("target", document["target"]),
        ("torch", document["torch"]),
        ("load", format_duration(document["load_s"])),
        ("first call", format_duration(document["first_s"])),
        *([(f"{document['repeat']} calls", latencies)] if latencies else []),
        *outputs,
    ]

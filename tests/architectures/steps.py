"""What is tried with one architecture: a compile in one process, and hits in a second one."""

from __future__ import annotations

import inspect
import sys
import time
from dataclasses import dataclass
from pathlib import Path  # a field's type
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

import trtcache
from tests.architectures.architecture import create
from tests.architectures.catalogue import factory, resized, varying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.architectures.architecture import Call

TOLERANCE = 1e-3
"""The largest difference to eager, relative to the largest value (or 1), that is not wrong."""

INDUCTOR = {"aot_inductor.compile_wrapper_opt_level": "O0", "cpp.vec_isa_ok": True}
"""Settings that build fast: the code that calls the kernels is not optimized."""

_SETTINGS = {"aot_inductor": {"inductor": INDUCTOR}}

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """An architecture, and the backend and cache that it is compiled with."""

    name: str
    backend: str
    cache: Path


def warm_up(cache: Path) -> None:
    """Compile a small network, so that torch and trtcache have imported and listed what every compile needs."""
    layers = torch.nn.Conv1d(4, 4, 1), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(*layers).eval().requires_grad_(False)
    trial, call = Trial("small/network", "aot_inductor", cache), (model, (torch.zeros(2, 4, 4),), {})
    for mode in ("on", "off"):
        _compile(trial, call, dynamic=True, direct=mode)


def compile_first(trial: Trial) -> Row:
    """Compile an architecture, with a dynamic batch if possible, compare it with eager, and refit it."""
    name = trial.name
    call = create(factory(name), 0)
    model, args, kwargs = call
    expected = _run(model, args, kwargs)
    row: Row = {"dynamic": "", "is_dynamic": True}
    start = time.perf_counter()
    try:
        module = _compile(trial, call, dynamic=True)
    except trtcache.errors.TrtcacheError as error:
        row |= {"dynamic": f"no: {_line(error)}", "is_dynamic": False}
        try:
            module = _compile(trial, call, dynamic=False)
        except Exception as static_error:  # noqa: BLE001  # whatever it is, it is a result
            who, why = _culprit(call, static_error)
            return {**row, "outcome": "failed", "by": who, "why": why, "seconds": time.perf_counter() - start}
    row |= {"seconds": time.perf_counter() - start, "left": len(module.report.left)}
    row |= {"route": module.report.route, "direct_first": module.report.direct, "reasons": _reasons(module)}
    row |= _compare(_run(module, args, kwargs), expected)
    row["outcome"] = "compiled" if row["is_right"] else "wrong"
    if not row["is_right"]:
        row["alone"] = _inductor_alone(call, expected)
    if row["is_dynamic"]:
        row["dynamic"] = _try(lambda: _other_sizes(name, call, module))
    row["refit"] = _try(lambda: _refit(name, call, module, expected))
    return row


def hit_second(trial: Trial, *, is_dynamic: bool) -> Row:
    """Ask for a compiled architecture where nothing may be built: with direct mode, and without it."""
    call = create(factory(trial.name), 0)
    model, args, kwargs = call
    expected = _run(model, args, kwargs)
    row: Row = {}
    for mode in ("on", "off"):
        start = time.perf_counter()
        try:
            module = _compile(trial, call, dynamic=is_dynamic, direct=mode)
        except trtcache.errors.TrtcacheError as error:
            row[f"hit_{mode}"] = f"no: {_line(error)}"
            continue
        seconds = time.perf_counter() - start
        is_hit = all(part.outcome == "hit" for part in module.report.partitions)
        answer = _compare(_run(module, args, kwargs), expected)
        row[f"hit_{mode}"] = "yes" if is_hit and answer["is_right"] else f"no: {_reasons(module) or answer}"
        row[f"route_{mode}"], row[f"seconds_{mode}"] = module.report.route, seconds
        if mode == "on":
            row["direct"] = module.report.direct
    return row


def record(trial: Trial) -> Row:
    """Compile an architecture with direct mode, so that a second process can hit."""
    module = _compile(trial, create(factory(trial.name), 0), dynamic=False)
    return {"first": module.report.direct}


def verify(trial: Trial) -> Row:
    """Compile it with the weights of another seed: with direct mode, and so that a hit is exported and compared."""
    call = create(factory(trial.name), 1)
    found = {mode: _compile(trial, call, dynamic=False, direct=mode).report.direct for mode in ("on", "verify")}
    library = sys.modules[trial.name.partition("/")[0]]
    return {**found, "library_version": str(getattr(library, "__version__", ""))}


def _compile(trial: Trial, call: Call, *, dynamic: bool, direct: str = "on") -> trtcache.CompiledModule:
    model, args, kwargs = call
    return trtcache.compile(
        model,
        args,
        kwargs or None,
        dynamic_shapes=_dynamic_shapes(trial.name, call) if dynamic else None,
        backend=trial.backend,
        settings=_SETTINGS.get(trial.backend),
        cache=trial.cache,
        name=trial.name.partition("/")[2],
        direct=direct,
    )


def _dynamic_shapes(name: str, call: Call) -> Any:
    """Return what torch.export takes: ``Dim.AUTO`` for each size that varies."""
    model, args, kwargs = call

    def shapes(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return None
        return dict.fromkeys(varying(name, leaf), torch.export.Dim.AUTO) or None

    if not kwargs:
        return pytree.tree_map(shapes, args)
    return pytree.tree_map(shapes, dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments))


def _run(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a model; what it returns does not share memory with anything."""
    with torch.no_grad():
        result = model(*args, **kwargs)
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, result)


def _compare(result: Any, expected: Any) -> Row:
    """Return the largest difference, and whether it is small enough; every number, shape and dtype has to agree."""
    ours, theirs = pytree.tree_leaves(result), pytree.tree_leaves(expected)
    if len(ours) != len(theirs):
        return {"off_by": None, "is_right": False, "difference": f"{len(ours)} outputs instead of {len(theirs)}"}
    off_by, is_right, found = 0.0, True, ""
    for our, their in zip(ours, theirs, strict=True):
        if not isinstance(their, torch.Tensor):
            is_same = our == their
        elif our.shape != their.shape or our.dtype != their.dtype:
            is_same, found = False, f"{our.dtype} {tuple(our.shape)} for {their.dtype} {tuple(their.shape)}"
        elif not their.is_floating_point():
            is_same = torch.equal(our, their)
        else:
            difference = (our.double() - their.double()).abs().max().item() if their.numel() else 0.0
            off_by = max(off_by, difference)
            is_same = difference <= TOLERANCE * max(1.0, their.abs().max().item() if their.numel() else 0.0)
        is_right = is_right and is_same
    return {"off_by": off_by, "is_right": is_right, **({"difference": found} if found else {})}


def _other_sizes(name: str, call: Call, module: trtcache.CompiledModule) -> str:
    """Call a module with another batch size; ``yes`` if it answers as eager does."""
    model, args, kwargs = call
    if all(not varying(name, leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
        return "no: no input has a batch dimension"
    args, kwargs = resized(name, (args, kwargs))
    answer = _compare(_run(module, args, kwargs), _run(model, args, kwargs))
    return "yes" if answer["is_right"] else f"wrong: off by {answer['off_by']}"


def _refit(name: str, call: Call, module: trtcache.CompiledModule, first: Any) -> str:
    """Set the weights of another seed; ``yes`` if the module then answers as eager with those weights."""
    _, args, kwargs = call
    other = create(factory(name), 1)[0]
    expected = _run(other, args, kwargs)
    if _compare(expected, first)["off_by"] == 0:
        return "no: the other weights change no output"
    module.refit(other.state_dict())
    answer = _compare(_run(module, args, kwargs), expected)
    return "yes" if answer["is_right"] else f"wrong: off by {answer['off_by']}"


def _try(step: Callable[[], str]) -> str:
    try:
        return step()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a result
        return f"no: {_line(error)}"


def _culprit(call: Call, error: Exception) -> tuple[str, str]:
    """Say who cannot compile a model: torch.export or AOTInductor if they fail without trtcache, or trtcache."""
    model, args, kwargs = call
    try:
        with torch.no_grad():
            program = torch.export.export(model, args, kwargs, strict=False)
            program.run_decompositions()
    except Exception as alone:  # noqa: BLE001
        return "torch.export", _line(alone)
    try:
        torch._inductor.aoti_compile_and_package(program, inductor_configs=INDUCTOR)
    except Exception as alone:  # noqa: BLE001
        return "AOTInductor", _line(alone)
    return "trtcache", _line(error)


def _inductor_alone(call: Call, expected: Any) -> str:
    """Say how far AOTInductor is off without trtcache."""
    model, args, kwargs = call

    def build() -> str:
        with torch.no_grad():
            program = torch.export.export(model, args, kwargs, strict=False)
        package = torch._inductor.aoti_compile_and_package(program, inductor_configs=INDUCTOR)
        answer = _compare(_run(torch._inductor.aoti_load_package(package), args, kwargs), expected)
        return f"off by {answer['off_by']}"

    return _try(build)


def _reasons(module: trtcache.CompiledModule) -> str:
    parts = [part for part in module.report.partitions if part.outcome != "hit"]
    return "; ".join(f"{part.outcome} ({part.reason})" for part in parts)


def _line(error: Exception) -> str:
    """Return an error as one line of at most 200 characters."""
    text = " ".join(str(error).split())
    text = text if isinstance(error, trtcache.errors.TrtcacheError) else f"{type(error).__name__}: {text}"
    return text if len(text) <= 200 else text[:197] + "..."

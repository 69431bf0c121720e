"""Call eager torch, ``ep.module()`` and a compiled module with the same inputs, and compare what they do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

import trtcache
from tests.peers.capture import EXPORT, Case, copied
from tests.peers.sizes import variants
from trtcache.errors import TrtcacheError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@dataclass
class Outcome:
    """An answer, or the exception in its place; and the inputs after the call."""

    value: Any = None
    error: Exception | None = None
    inputs: Any = None

    @property
    def result(self) -> Any:
        """What must be the same: the answer, and the inputs that a call may have changed."""
        return self.value, self.inputs


def judge(
    case: Case, backend: str, cache: Path, *, sizes: int, seed: int, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Compile a case and return what became of the program and of each call.

    Args:
        case: what a suite exported.
        backend: builds the engine.
        cache: a cache directory.
        sizes: the most calls to try with other inputs.
        seed: chooses them.
        announce: called before each step that could kill the process.
    """
    record: dict[str, Any] = {"model": type(case.model).__name__, "calls": []}
    announce("torch.export")
    try:
        # trtcache traces without strict, and compares with a program that was traced alike; where only a strict trace
        # works, or a test exports with options that compile does not have, the program itself is compiled.
        options = {name: value for name, value in case.options.items() if name != "strict"}
        try:
            program = _exported(case, options)
        except Exception:
            if not case.options.get("strict"):
                raise
            options = case.options
            program = _exported(case, options)
        reference = program.module()
        eager = copied(case.model)
        others = variants(case, program, sizes, seed)
    except Exception as error:  # noqa: BLE001
        return {**record, "program": "not exported again", "reason": reason(error)}
    record["guards"] = [str(guard)[:300] for guard in getattr(program, "_guards_code", ())]
    announce("trtcache.compile")
    try:
        module = _compiled(case, options, backend, cache)
    except Exception as error:  # noqa: BLE001
        return {**record, "program": "not compiled", "reason": reason(error)}
    record["program"] = "compiled"
    is_random, is_stateful = _is_random(case, program), bool(program.graph_signature.buffers_to_mutate)
    calls = [("example", "example", (case.args, case.kwargs))]
    calls += [("test", "the test's own", call) for call in case.calls]
    calls += [("sizes", label, call) for label, call in others]
    for kind, label, (args, kwargs) in calls:
        announce(f"eager: {label}")
        expected, exported = _outcome(eager, args, kwargs), _outcome(reference, args, kwargs)
        announce(f"compiled: {label}")
        found = _outcome(module, args, kwargs)
        verdict, why = compare(expected, exported, found, is_random)
        record["calls"].append({"kind": kind, "call": label, "verdict": verdict, "reason": why})
        if is_stateful and verdict != "agree":
            break  # the three do not share a state any more
    return record


def _exported(case: Case, options: dict[str, Any]) -> torch.export.ExportedProgram:
    args, kwargs = copied((case.args, case.kwargs))
    return EXPORT(copied(case.model), args, kwargs, dynamic_shapes=case.dynamic_shapes, **options)


def _compiled(case: Case, options: dict[str, Any], backend: str, cache: Path) -> trtcache.CompiledModule:
    if options:
        return trtcache.compile(_exported(case, options), backend=backend, cache=cache, direct="off")
    args, kwargs = copied((case.args, case.kwargs))
    shapes = case.dynamic_shapes
    return trtcache.compile(
        copied(case.model), args, kwargs, dynamic_shapes=shapes, backend=backend, cache=cache, direct="off"
    )


def _outcome(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int = 0) -> Outcome:
    given = copied((args, kwargs))
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            value = module(*given[0], **given[1])
        return Outcome(copied(value), None, given)
    except Exception as error:  # noqa: BLE001
        return Outcome(None, error)


def compare(eager: Outcome, exported: Outcome, found: Outcome, is_random: bool = False) -> tuple[str, str]:
    """Return the verdict on a call of the compiled module, and the reason where there is one.

    ``agree``: the same as ``ep.module()``, or as eager where ``ep.module()`` raises or differs from eager. ``both
    raise``. ``refused``: an error, where ``ep.module()`` answers as eager does. ``WRONG``: anything else answered.
    """
    if found.error is not None:
        if exported.error is not None:
            return "both raise", ""
        if eager.error is not None or _difference(eager.result, exported.result, is_random):
            return "refused, ep.module() is wrong", reason(found.error)
        return "refused", reason(found.error)
    if exported.error is None:
        difference = _difference(exported.result, found.result, is_random)
        if not difference:
            is_same = eager.error is None and not _difference(eager.result, exported.result, is_random)
            return ("agree", "") if is_same else ("agree, eager differs", reason(eager.error) if eager.error else "")
        if eager.error is None and not _difference(eager.result, found.result, is_random):
            return "agree with eager only", difference
        return "WRONG", f"differs from ep.module(): {difference}"
    if eager.error is None and not (difference := _difference(eager.result, found.result, is_random)):
        return "agree with eager only", f"ep.module() raises {reason(exported.error)}"
    if eager.error is not None:
        return "WRONG", f"answers; eager raises {reason(eager.error)}, ep.module() {reason(exported.error)}"
    return "WRONG", f"answers, eager differs ({difference}); ep.module() raises {reason(exported.error)}"


def _difference(expected: Any, found: Any, is_random: bool) -> str:
    """Return how two results differ, or nothing."""
    (wanted, spec), (given, other) = pytree.tree_flatten(expected), pytree.tree_flatten(found)
    if spec != other:
        return f"structure {other}, not {spec}"
    for number, (one, two) in enumerate(zip(wanted, given, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
            said = _tensor_difference(one, two, is_random)
        else:
            is_same = type(one) is type(two) and (one is two or bool(one == two) or one != one)
            said = "" if is_same else f"{two!r}, not {one!r}"
        if said:
            return f"leaf {number}: {said}"[:300]
    return ""


def _tensor_difference(expected: torch.Tensor, found: torch.Tensor, is_random: bool) -> str:
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return f"{tuple(found.shape)} {found.dtype}, not {tuple(expected.shape)} {expected.dtype}"
    if is_random:
        return ""
    tolerance = _TOLERANCE.get(expected.dtype, 2e-4)
    try:
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _is_random(case: Case, program: torch.export.ExportedProgram) -> bool:
    """Say whether answers differ from call to call: then only shapes and dtypes are compared."""
    graphs = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    targets = [node.target for graph in graphs for node in graph.graph.nodes]
    if any("empty" in str(target) for target in targets):
        return True  # whatever was in memory
    if not any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets):
        return False
    # Attention and dropout have the tag as well, and draw nothing where the probability is 0 or the model is evaluated.
    first, second = (_outcome(copied(case.model), case.args, case.kwargs, seed) for seed in (1, 2))
    return first.error is not None or bool(_difference(first.result, second.result, False))


def reason(error: BaseException | None) -> str:
    """Return an error's class and first line, short; ours keep their message, since it is what a caller reads."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = re.sub(r"0x[0-9a-f]+", "0x…", text)
    ours = "" if isinstance(error, TrtcacheError) else "not ours: "
    return f"{ours}{type(error).__name__}: {text}"[:240]

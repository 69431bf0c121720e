"""Runs field scenarios: each in a child of a process that has imported torch, and after the change in another's."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.direct.field_known import SAME_VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.direct.field_scenarios import Scenario

START = """import torch
torch.manual_seed(0)
args, kwargs, dynamic_shapes = (torch.arange(12.0).reshape(3, 4).clone(),), {}, None
"""


def _described(leaf: Any) -> tuple[Any, ...]:
    import torch

    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__, repr(leaf)
    wide = leaf.detach().to_dense() if leaf.layout != torch.strided else leaf.detach()
    wide = wide.to(torch.complex128 if leaf.dtype.is_complex else torch.float64)
    return str(leaf.dtype), tuple(leaf.shape), repr(wide.resolve_conj().tolist())


def _answer(script: Mapping[str, Any], cache: Path, direct: str) -> tuple[str, list[Any]]:
    import torch

    import trtcache

    args, kwargs = script["args"], script["kwargs"]
    module = trtcache.compile(
        script["model"],
        args,
        kwargs,
        dynamic_shapes=script["dynamic_shapes"],
        backend="stored",
        name="Model",
        direct=direct,
        cache=cache,
    )
    torch.manual_seed(0)
    with torch.no_grad():
        leaves, spec = torch.utils._pytree.tree_flatten(module(*args, **kwargs))
    keys = [str(getattr(part, "key", "")) for part in module.report.partitions]
    return module.report.direct, [keys, str(spec), *map(_described, leaves)]


class _MissError(BaseException):
    """A model would be exported, which takes longer than all else."""


def judged(script: Mapping[str, Any], cache: Path, *, compare: bool = True, keys: bool = True) -> dict[str, Any]:
    """Compile a model with direct mode, and if it hits without; compare. Nothing comes before the first look-up.

    Without ``keys`` only the answers are compared.
    """
    from trtcache.frontends.exported import ModuleSource

    def refuse(source: ModuleSource, _: object) -> None:
        assert source.direct_mode is not None
        raise _MissError(source.direct_mode.explain())

    try:
        with patch.object(ModuleSource, "export", refuse):
            direct, got = _answer(script, cache, "on")
    except _MissError as miss:
        return {"direct": str(miss), "wrong": ""}
    except Exception as error:  # noqa: BLE001  # of the scenario
        try:
            _answer(script, cache, "off")
        except Exception:  # noqa: BLE001  # the same
            return {"direct": f"off: {error!r}", "wrong": ""}
        return {"direct": "off", "wrong": f"only direct mode fails: {traceback.format_exc()[-600:]}"}
    if not compare or direct != "hit":
        return {"direct": direct, "wrong": ""}
    try:
        wanted = _answer(script, cache, "off")[1]
    except Exception:  # noqa: BLE001  # no program at all is another answer, too
        return {"direct": direct, "wrong": f"exporting fails: {traceback.format_exc()[-600:]}"}
    first = 0 if keys else 1
    wrong = "" if repr(got[first:]) == repr(wanted[first:]) else f"{got} instead of {wanted}"
    return {"direct": direct, "wrong": wrong[:1500]}


def _eager(script: Mapping[str, Any]) -> str:
    import torch

    try:
        with torch.no_grad():
            out = script["model"](*script["args"], **script["kwargs"])
        return repr([*map(_described, torch.utils._pytree.tree_leaves(out))])
    except Exception as error:  # noqa: BLE001  # it says what it is
        return repr(error)


def _script(code: str) -> dict[str, Any]:
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    space = main.__dict__
    exec(compile(code, "script.py", "exec"), space)  # noqa: S102  # the scenario's own
    return space


def _first(scenario: Scenario, folder: Path, effects: bool) -> dict[str, Any]:
    space = _script(f"{START}{scenario.first}\n{scenario.make}")
    result: dict[str, Any] = {"recorded": _answer(space, folder / "cache", "on")[0]}
    shutil.copytree(folder / "cache", folder / "cache-second")
    if effects or scenario.harmless:
        result["control"] = judged(space, folder / "cache", compare=scenario.harmless)
    if effects:
        result["eager"] = _eager(space)
    if scenario.change and scenario.live:
        exec(compile(scenario.change, "change.py", "exec"), space)  # noqa: S102  # the scenario's own
        result["live"] = judged(space, folder / "cache", keys=scenario.doc not in SAME_VALUES)
    return result


def _second(scenario: Scenario, folder: Path, effects: bool) -> dict[str, Any]:
    space = _script(f"{START}{scenario.second or scenario.first}\n{scenario.make}\n{scenario.change}")
    result: dict[str, Any] = {"pair": judged(space, folder / "cache-second", keys=scenario.doc not in SAME_VALUES)}
    if effects:
        result["eager"] = _eager(space)
    return result


def _child(scenario: Scenario, folder: Path, step: str, answer: Path) -> None:
    output = os.open(folder / f"{step}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.alarm(120)
    os.environ.update({**scenario.environ, **(scenario.env if step == "second" else {})})
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["script.py"]
    sys.dont_write_bytecode = True
    effects = "FIELD_EFFECTS" in os.environ
    try:
        result = (_first if step == "first" else _second)(scenario, folder, effects)
    except BaseException:  # noqa: BLE001  # it ends here, whatever it is
        result = {"crash": traceback.format_exc()[-2000:]}
    answer.write_text(json.dumps(result))
    os._exit(0)


def run(scenario: Scenario, folder: Path, step: str) -> dict[str, Any]:
    """Run a step of a scenario in a child of this process."""
    scenario.write(folder, after=step == "second")
    answer = folder / f"{step}.json"
    child = os.fork()
    if child == 0:
        _child(scenario, folder, step, answer)
    os.waitpid(child, 0)
    try:
        result: dict[str, Any] = json.loads(answer.read_text())
    except (OSError, ValueError) as error:
        result = {"crash": f"no answer: {error}"}
    return result


def warm() -> None:
    """Import what compiling with direct mode imports, to have it in each child."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        for by in (nn := torch.nn).ReLU(), nn.ReLU(), nn.Linear(4, 4), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2):
            script = {"model": by.eval(), "args": (torch.rand(3, 4),), "kwargs": {}, "dynamic_shapes": None}
            judged(script, Path(folder))
            _answer(script, Path(folder), "on")


def main() -> None:
    """Run a step of the scenarios with these numbers, and print a line of JSON for each."""
    import time

    from tests.direct.field_scenarios import SCENARIOS
    from tests.keys.tracing import operators_listed_once

    base, step, *numbers = sys.argv[1:]
    with operators_listed_once():
        warm()
        gc.collect()
        gc.freeze()  # or each child copies the memory of all objects when it collects garbage
        for number in map(int, numbers):
            began = time.perf_counter()
            result = run(SCENARIOS[number], Path(base) / f"s{number:03}", step)
            result["seconds"] = round(time.perf_counter() - began, 3)
            print(json.dumps({"number": number, **result}), flush=True)  # noqa: T201  # its answer


if __name__ == "__main__":
    main()

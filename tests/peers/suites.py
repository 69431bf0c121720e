"""The suites, and one process that runs some of their tests: ``python -m tests.peers.suites SUITE FOLDER ...``.

Each result is appended to a file at once, so that a program which kills the process, or a test that hangs, costs only
itself: ``tests.peers.evidence`` starts another process for the rest.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers.capture import Case, Recorder


@dataclass(frozen=True)
class Suite:
    """Test files of a checkout, or cases that torch itself installs."""

    title: str
    files: tuple[str, ...] = ()
    deselected: tuple[str, ...] = ()  # parts of names: tests for devices that are not here


SUITES = {
    "export": Suite("torch `test_export.py`", ("pytorch/test/export/test_export.py",)),
    "aot_inductor": Suite(
        "torch `test_aot_inductor.py`, CPU",
        ("pytorch/test/inductor/test_aot_inductor.py",),
        ("_cuda", "_xpu", "_mps", "_gpu", "Gpu", "MPS", "Mps"),
    ),
    "lowering": Suite("TensorRT `tests/py/dynamo/lowering`", ("TensorRT/tests/py/dynamo/lowering",)),
    "partitioning": Suite("TensorRT `tests/py/dynamo/partitioning`", ("TensorRT/tests/py/dynamo/partitioning",)),
    "models": Suite("TensorRT `tests/py/dynamo/models`", ("TensorRT/tests/py/dynamo/models",)),
    "module_db": Suite("torch `module_db`, every dimension `Dim.AUTO`"),
    "exportdb": Suite("torch's `exportdb` examples"),
}


class Log:
    """Results of one process, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        """Append to the file."""
        self._file = path.open("a")
        self.done = {record["id"] for record in records(path) if "outcome" in record}

    def write(self, **record: Any) -> None:
        """Append a record that is whole even if the process ends now."""
        self._file.write(json.dumps(record, default=str) + "\n")
        self._file.flush()


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file; a line that was cut off is none."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


class Process:
    """Run tests, and examine what they export."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        """Install the recorder, before any test file is imported."""
        from tests.peers.capture import Recorder

        self._arguments, self._folder = arguments, folder
        self.log = Log(Path(arguments.log))
        self.recorder: Recorder = Recorder()
        self.recorder.install()
        self.around: Callable[[], Any] = nullcontext  # a test runs in it, and what is examined does not

    def is_chosen(self, name: str) -> bool:
        """Say whether a test is in the sample and not done yet."""
        is_asked = self._arguments.match in name
        return is_asked and name not in self.log.done and crc32(name.encode()) % 1000 < 1000 * self._arguments.sample

    def run(self, name: str, collect: Callable[[], None]) -> None:
        """Run a test, which may fail, and examine each program that it exported."""
        from tests.peers.judge import judge, reason

        self.log.write(id=name, step="the test")
        failure = ""
        with self.recorder.recording():
            try:
                with self.around():
                    collect()
            except Exception as error:  # noqa: BLE001  # a test fails as it likes; its programs are collected
                failure = reason(error)
        results = []
        for number, case in enumerate(self.recorder.cases):

            def announce(step: str, number: int = number) -> None:
                self.log.write(id=name, step=f"program {number}: {step}")

            try:
                found = judge(
                    case,
                    self._arguments.backend,
                    self._folder / "cache",
                    sizes=self._arguments.sizes,
                    seed=crc32(f"{name} {number}".encode()),
                    announce=announce,
                )
            except Exception as error:  # noqa: BLE001  # a case that the harness cannot compare is no result
                found = {"program": "not compared", "reason": reason(error), "calls": []}
            results.append(found)
        self.log.write(id=name, outcome="examined", failure=failure, programs=results)
        self.recorder.cases = []
        _reset()


def _reset() -> None:
    import torch

    torch._dynamo.reset()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


class Plugin:
    """Runs pytest's items one after the other through a ``Process``."""

    def __init__(self, process: Process, suite: Suite) -> None:
        """Choose by the suite's names."""
        self._process, self._suite = process, suite

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Drop what is done, not in the sample, or for another device."""
        items[:] = [
            item
            for item in items
            if not any(part in item.name or part in item.nodeid for part in self._suite.deselected)
            and self._process.is_chosen(item.nodeid)
        ]
        _answer_without_packages()
        self._process.log.write(count=len(items) + len(self._process.log.done))

    def pytest_make_collect_report(self, collector: Any) -> Any:
        """Import a file as its tests run."""
        from _pytest.runner import pytest_make_collect_report

        with self._process.around():
            return pytest_make_collect_report(collector)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep what cannot be imported."""
        if report.failed:
            text = str(report.longrepr).strip().splitlines()
            why = next((line for line in reversed(text) if line.startswith("E ")), text[-1] if text else "")
            if report.nodeid not in self._process.log.done:
                self._process.log.write(id=report.nodeid, outcome="not imported", reason=why[:300])

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        """Run an item without its reports."""
        from _pytest.runner import call_and_report

        def collect() -> None:
            failed = []
            with _quiet():
                for when in ("setup", "call", "teardown"):
                    if when != "call" or not failed:
                        report = call_and_report(item, when, log=False, nextitem=nextitem)
                        failed += [report] if report.failed or report.skipped else []
            if failed:
                raise RuntimeError(_last(failed[0]))

        self._process.run(item.nodeid, collect)
        return True


def _answer_without_packages() -> None:
    """Replace what AOTInductor's tests build and load with: ``ep.module()`` answers, and no file is looked into."""
    import torch

    utils = next((sys.modules[name] for name in list(sys.modules) if name.endswith("test_aot_inductor_utils")), None)
    if utils is None:
        return
    util = utils.AOTIRunnerUtil

    def load(*arguments: Any, **_: Any) -> Any:
        return torch._inductor.aoti_load_package(next(one for one in arguments if str(one).endswith(".pt2")))

    def run_multiple(model: Any, inputs: Any, options: Any = None, dynamic_shapes: Any = None, **_: Any) -> Any:
        loaded = load(util.compile(model, inputs[0], dynamic_shapes=dynamic_shapes))
        return [loaded(*given) for given in inputs]

    def run(model: Any, inputs: Any, options: Any = None, dynamic_shapes: Any = None, **_: Any) -> Any:
        return run_multiple(model, [inputs], dynamic_shapes=dynamic_shapes)[0]

    def legacy_compile(
        model: Any, example_inputs: Any, options: Any = None, dynamic_shapes: Any = None, **_: Any
    ) -> Any:
        return util.compile(model, example_inputs, dynamic_shapes=dynamic_shapes)

    def legacy_run(
        device: str, model: Any, inputs: Any, options: Any = None, dynamic_shapes: Any = None, **_: Any
    ) -> Any:
        return run(model, inputs, dynamic_shapes=dynamic_shapes)

    replaced = {"run": run, "run_multiple": run_multiple, "load_package": load, "legacy_load": load}
    for name, function in {**replaced, "legacy_compile": legacy_compile, "legacy_run": legacy_run}.items():
        setattr(util, name, staticmethod(function))


def _last(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    lines = [line for line in text.splitlines() if line.startswith("E ")] or text.strip().splitlines() or [""]
    return f"{report.when} {report.outcome}: {lines[0][:200]}"


def _quiet() -> Any:
    warnings.simplefilter("ignore")
    return nullcontext()


_INPUTS = 5  # of each module in module_db


def _exportdb() -> Iterator[tuple[str, Callable[[Recorder], Case]]]:
    from torch._export.db.examples import all_examples

    from tests.peers.capture import Case

    for name, example in all_examples().items():

        def make(_: Recorder, example: Any = example) -> Case:
            calls = [(tuple(example.extra_args), {})] if example.extra_args else []
            return Case(
                example.model, example.example_args, dict(example.example_kwargs), example.dynamic_shapes, {}, calls
            )

        yield name, make


def _module_db() -> Iterator[tuple[str, Callable[[Recorder], Case]]]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        inputs = _inputs_of(info)
        # One loss has 60 inputs for its options: a few of each module, far from each other.
        for number in range(0, len(inputs), max(1, -(-len(inputs) // _INPUTS))):
            given = inputs[number]
            yield f"{info.name}[{number}]", lambda _, info=info, given=given: _module_case(info, given)


def _inputs_of(info: Any) -> list[Any]:
    """Return inputs that a module takes: of float32, or of float64 where its others are of that dtype."""
    import torch

    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        try:
            found = info.module_inputs_func(info, "cpu", dtype, requires_grad=False, training=False)
            found = [given for given in found if given.forward_input is not None]
            first = found[0]
            model = info.module_cls(*first.constructor_input.args, **first.constructor_input.kwargs).to(dtype)
            model(*first.forward_input.args, **first.forward_input.kwargs)
        except Exception:  # noqa: BLE001, S112  # not for this dtype, or not on a CPU
            continue
        return found
    return []


def _module_case(info: Any, given: Any) -> Case:
    """Return a module of ``module_db`` with inputs of which every dimension may vary."""
    import torch
    from torch.utils import _pytree as pytree

    from tests.peers.capture import Case

    def dims(leaf: Any) -> Any:
        is_tensor = isinstance(leaf, torch.Tensor)
        return dict.fromkeys(range(leaf.dim()), torch.export.Dim.AUTO) if is_tensor else None

    torch.manual_seed(0)
    args, kwargs = given.forward_input.args, given.forward_input.kwargs
    model = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs).eval()
    if any(isinstance(one, torch.Tensor) and one.dtype is torch.float64 for one in args):
        model = model.double()
    if "Lazy" in info.name:
        model(*args, **kwargs)  # its weights have no sizes before
    # Without gradients attention takes its fast path, as where inference is all that is wanted.
    model = model.requires_grad_(False)
    shapes = pytree.tree_map(dims, (tuple(args), dict(kwargs)))
    if not kwargs:
        return Case(model, args, kwargs, shapes[0])
    names = inspect.signature(model.forward).parameters
    return Case(model, args, kwargs, {**dict(zip(names, shapes[0], strict=False)), **shapes[1]})


_INSTALLED = {"exportdb": _exportdb, "module_db": _module_db}


def _run_installed(name: str, process: Process) -> None:
    made = [(label, make) for label, make in _INSTALLED[name]() if process.is_chosen(f"{name}::{label}")]
    process.log.write(count=len(made) + len(process.log.done))
    for label, make in made:
        process.run(f"{name}::{label}", lambda make=make: process.recorder.cases.append(make(process.recorder)))


def _run_files(suite: Suite, folder: Path, process: Process) -> None:
    import pytest

    files = [str(folder / one) for one in suite.files]
    sys.path[:0] = sorted({str(Path(one).parent) for one in files if one.endswith(".py")})
    options = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "no:terminal"]
    options += ["--continue-on-collection-errors", "-W", "ignore", "--import-mode=prepend"]
    if suite.files[0].startswith("TensorRT"):
        from tests.peers import stand_in

        stand_in.install(process.recorder)
        process.around = stand_in.no_gpu
    pytest.main([*options, *files], plugins=[Plugin(process, suite)])


def install_interpreter(site: Path) -> None:
    """Register the interpreter as another distribution would, by an entry point."""
    from trtcache.config import backend_settings

    named = site / "interpreter-1.0.dist-info"
    named.mkdir(parents=True)
    (named / "METADATA").write_text("Name: interpreter\nVersion: 1.0\n")
    (named / "entry_points.txt").write_text(
        "[trtcache.backends]\ninterpreter = trtcache.testing.interpreter:Interpreter\n"
    )
    sys.path.append(str(site))
    backend_settings.backend_table.cache_clear()


def main() -> None:
    """Run the tests of a suite that a log does not have yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", required=True)
    parser.add_argument("--backend", default="interpreter")
    parser.add_argument("--sample", type=float, default=1.0)
    parser.add_argument("--match", default="")
    parser.add_argument("--sizes", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install_interpreter(folder / "site")
        os.chdir(folder)  # some tests write beside themselves
        process = Process(arguments, folder)
        if arguments.suite in _INSTALLED:
            _run_installed(arguments.suite, process)
        else:
            _run_files(SUITES[arguments.suite], arguments.folder.resolve(), process)
        process.log.write(end=True)


if __name__ == "__main__":
    main()

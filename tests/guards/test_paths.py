"""Guards on every path to a compiled module: each of them checks a call before an engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.guards.cases import CASES, COMBINED, Case, Combined, answers, calls, outcomes
from trtcache.integrations import torch_compile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = [pytest.mark.slow]

IN_TORCH = {"pad": ["aten.sum"], "squeeze": ["aten.squeeze"]}
SOME = ("eq", "pad", "numel", "zero or one", "squeeze", "and or not")


@dataclass(frozen=True)
class Place:
    """A case by name, a cache, a folder for files, and a backend."""

    name: str
    cache: Path
    folder: Path
    backend: str

    @property
    def case(self) -> Case:
        """The case; the combined model where the name is its own."""
        return CASES.get(self.name, COMBINED)

    def model(self) -> torch.nn.Module:
        """Return a new model."""
        return self.case.model() if self.name in CASES else Combined()

    def shapes(self) -> Any:
        """Return dynamic shapes for it."""
        return self.case.dynamic_shapes("dynamic", spread=self.name in CASES)

    def compile(self, **options: Any) -> Any:
        """Compile a new model; direct mode is off unless ``options`` says otherwise."""
        given = {"dynamic_shapes": self.shapes(), "backend": self.backend, "cache": self.cache, **options}
        return trtcache.compile(self.model(), self.case.inputs(self.case.example()), **given)

    def program(self) -> torch.export.ExportedProgram:
        """Return the model's program, which torch exported without us."""
        args = self.case.inputs(self.case.example())
        return torch.export.export(self.model(), args, dynamic_shapes=self.shapes(), strict=False)

    def file(self) -> Path:
        """Return the path of a file of the program."""
        torch.export.save(self.program(), self.folder / "model.pt2")
        return self.folder / "model.pt2"

    def opened(self, model: Any) -> Any:
        """Compile a program or its file."""
        return trtcache.compile(model, backend=self.backend, cache=self.cache)

    def loaded(self, module: Any) -> Any:
        """Write a compiled module to a file and load that."""
        trtcache.export(module, self.folder / "program.pt2")
        return trtcache.load(self.folder / "program.pt2", trust="local-file")


def first(at: Place) -> Any:
    """Return what ``compile`` makes."""
    return at.compile()


def second(at: Place) -> Any:
    """Return what a second ``compile`` finds by the key alias."""
    at.compile()
    module = at.compile()
    assert not module.report.lower_s
    return module


def direct(at: Place) -> Any:
    """Return what direct mode finds."""
    at.compile(direct="on")
    return at.compile(direct="on")


def program(at: Place) -> Any:
    """Return a compiled program."""
    return at.opened(at.program())


def program_again(at: Place) -> Any:
    """Return the second compile of one program."""
    exported = at.program()
    at.opened(exported)
    return at.opened(exported)


def file(at: Place) -> Any:
    """Return a compiled file of a program."""
    return at.opened(at.file())


def file_again(at: Place) -> Any:
    """Return what a file's second ``compile`` finds by its digest."""
    path = at.file()
    at.opened(path)
    return at.opened(path)


def loaded(at: Place) -> Any:
    """Return what ``load`` opens."""
    return at.loaded(at.compile())


def in_parts(at: Place) -> Any:
    """Return a program of which some operators stay in torch."""
    names = IN_TORCH.get(at.name, ["aten.mul"] if at.name in CASES else ["aten.mul", "aten.exp"])
    module = at.compile(settings={"torch_executed_ops": names})
    assert module.report.left
    return module


def loaded_in_parts(at: Place) -> Any:
    """Return what ``load`` opens of a program in parts."""
    return at.loaded(in_parts(at))


OF_MODELS = (first, second, direct, loaded, in_parts, loaded_in_parts)
OF_PROGRAMS = (program, program_again, file, file_again)
_by_path = pytest.mark.parametrize("path", [*OF_MODELS, *OF_PROGRAMS], ids=lambda path: path.__name__)


def held(path: Any, at: Place, count: int = 20) -> None:
    """Call what a path leads to, and compare with the model; with a program that torch exported, which knows less."""
    eager = at.program().module() if path in OF_PROGRAMS else at.model()
    found = outcomes(path(at), eager, calls(at.case, count=count, seed=path.__name__))
    assert found["right"]
    assert found["refused"] or path in OF_PROGRAMS  # torch's own exports have no guards on sizes of 0 and 1


@_by_path
@pytest.mark.parametrize("name", SOME)
def test_a_call_is_right_or_refused(path: Any, name: str, interpreter: str, tmp_path: Path) -> None:
    """Whichever way a module comes about, no size is answered by the wrong branch."""
    held(path, Place(name, tmp_path / "cache", tmp_path, interpreter))


@_by_path
def test_an_engine_of_aot_inductor_is_right_or_refused(path: Any, engines: Path, tmp_path: Path) -> None:
    """The default backend, whose package loader checks nothing, is held to the same."""
    held(path, Place("combined", engines, tmp_path, "aot_inductor"), count=60)


def test_a_second_process_is_right_or_refused(run_python: RunPython, engines: Path, tmp_path: Path) -> None:
    """Direct mode in a new process takes the engine without an export, and checks its guards."""
    code = f"""
        from pathlib import Path
        from tests.guards.cases import COMBINED, Combined, calls, outcomes
        from tests.guards.test_paths import Place

        at = Place("combined", Path({str(engines)!r}), Path({str(tmp_path)!r}), "aot_inductor")
        module = at.compile(direct="on")
        print(dict(outcomes(module, Combined(), calls(COMBINED, count=60))), module.report.export_s)
    """
    for _ in range(2):
        done = run_python(code)
        assert done.returncode == 0, done.stderr
    assert "right" in done.stdout
    assert "refused" in done.stdout
    assert done.stdout.split()[-1] == "0.0"


class NeverError(Exception):
    """Raised by nobody."""


@pytest.mark.parametrize("name", SOME)
def test_torch_compile_is_right(name: str, interpreter: str, tmp_path: Path) -> None:
    """Dynamo's own guards choose another graph, or a refused call runs in torch: what torch answers is answered."""
    case = CASES[name]
    torch._dynamo.reset()
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path / "cache"}
    compiled = torch.compile(case.model(), backend=torch_compile.backend, dynamic=True, options=options)
    answered = [args for args in calls(case, seed="dynamo") if answers(case.model(), args)]
    with torch._dynamo.config.patch(recompile_limit=100):
        assert outcomes(compiled, case.model(), answered, refused=NeverError) == {"right": len(answered)}
    torch._dynamo.reset()

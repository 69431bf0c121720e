"""How calls of three modules are compared, and which other calls are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest
import torch

from tests.peers.capture import EXPORT, Case, Recorder
from tests.peers.document import figures, wrong_calls
from tests.peers.judge import Outcome, compare, judge
from tests.peers.sizes import variants

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = Outcome((torch.ones(2),)), Outcome((torch.zeros(2),))
RAISES = Outcome(error=ValueError("no"))


class Branch(torch.nn.Module):
    """Takes another branch for equal sizes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == y.shape[0] else x * 3


def case() -> Case:
    """Return a program with a guard, and what it is exported with."""
    return Case(Branch(), (torch.ones(4), torch.ones(5)), {}, ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}))


@pytest.mark.parametrize(
    ("eager", "exported", "found", "verdict"),
    [
        (ONE, ONE, ONE, "agree"),
        (ONE, ONE, TWO, "WRONG"),
        (ONE, TWO, TWO, "agree, eager differs"),
        (ONE, TWO, ONE, "agree with eager only"),
        (ONE, RAISES, ONE, "agree with eager only"),
        (ONE, RAISES, TWO, "WRONG"),
        (RAISES, RAISES, ONE, "WRONG"),
        (RAISES, RAISES, RAISES, "both raise"),
        (ONE, RAISES, RAISES, "both raise"),
        (ONE, ONE, RAISES, "refused"),
        (ONE, TWO, RAISES, "refused, ep.module() is wrong"),
    ],
)
def test_an_answer_is_right_as_eager_or_as_the_exported_program(
    eager: Outcome, exported: Outcome, found: Outcome, verdict: str
) -> None:
    """An answer that neither eager torch nor the exported program gives is wrong; an error never is."""
    assert compare(eager, exported, found)[0] == verdict


def test_other_dtypes_shapes_and_structures_are_wrong() -> None:
    """Values alone do not make an answer right."""
    for other in (torch.ones(2).double(), torch.ones(2, 1), (torch.ones(2),), 1):
        assert compare(ONE, ONE, Outcome((other,)))[0] == "WRONG"


def test_calls_with_other_sizes_fit_and_do_not_fit_the_guards() -> None:
    """Among a few variants are equal sizes, which the program's guard forbids, and unequal ones."""
    given = case()
    program = EXPORT(given.model, given.args, dynamic_shapes=given.dynamic_shapes)
    sizes = [tuple(len(one) for one in args) for _, (args, _) in variants(given, program, 20, seed=0)]
    assert len(sizes) == len(set(sizes)) == 20
    assert (4, 5) not in sizes
    assert any(x == y for x, y in sizes)
    assert any(x != y for x, y in sizes)


def test_a_suite_is_recorded_with_its_own_calls() -> None:
    """An export is kept with its example, and with what its module is called with while the test runs."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (torch.export, "export"),
            (torch.export.ExportedProgram, "module"),
            (torch.export.ExportedProgram, "run_decompositions"),
            (torch._inductor, "aoti_compile_and_package"),
            (torch._inductor, "aoti_load_package"),
        ):
            patch.setattr(owner, name, getattr(owner, name))
        recorder.install()
        with recorder.recording():
            program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
            program.module()(torch.zeros(2))
        torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    (kept,) = recorder.cases
    assert [args[0].tolist() for args, _ in kept.calls] == [[0.0, 0.0]]


def test_figures_count_programs_calls_and_verdicts(interpreter: str, tmp_path: Path) -> None:
    """A judged case is one line of the table, and only wrong answers are listed."""
    given = case()
    given.calls.append(((torch.ones(6), torch.ones(7)), {}))
    found = judge(given, interpreter, tmp_path, sizes=0, seed=crc32(b""), announce=lambda _: None)
    assert [(call["kind"], call["verdict"]) for call in found["calls"]] == [("example", "agree"), ("test", "agree")]
    results = {"exportdb": [{"id": "a", "outcome": "examined", "programs": [found]}]}
    assert "| all | 1 | 1 | 0 | 2 | 2 | 0 | 0 | 0 |" in figures(results)
    assert not wrong_calls(results)

"""A program that is rebuilt from what an artifact keeps of it has the key that it had, and answers alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.keys.architectures import called
from tests.partition.parts import Attention, dynamic, inputs
from tests.prepare import prepare
from trtcache.backends.program_forms import to_module_with_weights
from trtcache.backends.protocol import make_members
from trtcache.compiler.stored_program import _target, rebuild_program
from trtcache.frontends.request import make_request

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.lowering import LoweredProgram

ROWS = Dim("rows", min=2, max=9)


class Folded(nn.Module):
    """A convolution with a BatchNorm, whose weights are made by recipes, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.table = torch.arange(4.0)[:, None, None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.bn(self.conv(x)) + self.table
        return made.split(2, 1)[1][:, :, 1:-1].to(torch.float64) * 2.5


class Sized(nn.Module):
    """Arithmetic on sizes that vary."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return (x.reshape(-1) * y.repeat(rows)[: rows * columns]).view(columns, rows).sum(0) / (rows + columns // 2)


CASES: dict[str, tuple[nn.Module, tuple[Any, ...], Any]] = {
    "attention": (Attention(), inputs(3), dynamic()),
    "folded": (Folded().eval(), (torch.randn(2, 3, 8, 8),), ({0: ROWS},)),
    "sized": (Sized(), (torch.randn(4, 6), torch.randn(6)), ({0: ROWS}, None)),
    "bert": (*called("bert"), None),
    "lstm": (nn.LSTM(4, 5, batch_first=True), (torch.randn(2, 3, 4),), None),
}


def _operators(program: LoweredProgram) -> list[str]:
    return [str(node.target) for node in to_module_with_weights(program)[0].graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", CASES)
def test_the_key_is_the_same(name: str, tmp_path: Path) -> None:
    """And so is the graph that a builder gets of it."""
    model, args, shapes = CASES[name]
    given = prepare(model, args, dynamic_shapes=shapes, backend="aot_inductor")
    program = given.program
    members = make_members(program, given.records, tmp_path)
    kept = {name: content for name, content in members.items() if isinstance(content, bytes)}
    how: Any = {"pipeline": program.pipeline, "hints": [None] * len(program.symbols.order), "device": program.device}
    again = rebuild_program(kept, name="again", **how)
    assert _operators(again) == _operators(program)
    request = make_request(again, given.backend, given.settings, given.target)
    found, expected = (getattr(one, "document", {})["parts"] for one in (request.key, given.key))
    differing = {"structure", "layouts"}  # whole programs have these, and parts have none
    assert {name for name, part in expected.items() if found[name] != part} <= differing


def test_a_custom_operator_is_found_by_its_schema() -> None:
    """A graph has the whole schema: an operator that is gone or takes other arguments is an error."""
    with torch.library._scoped_library("trtcache_rebuilt", "FRAGMENT") as library:
        library.define("scale(Tensor x, float by) -> Tensor")
        library.define("scale.out(Tensor x) -> Tensor")
        for operator in (torch.ops.trtcache_rebuilt.scale.default, torch.ops.trtcache_rebuilt.scale.out):
            assert _target(str(operator._schema)) is operator
        for schema in ("trtcache_rebuilt::scale(Tensor x) -> Tensor", "trtcache_nowhere::f(Tensor x) -> Tensor"):
            with pytest.raises(ValueError, match="not registered, or its schema has changed"):
                _target(schema)

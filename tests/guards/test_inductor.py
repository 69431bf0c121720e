"""Sizes that Inductor takes for numbers while it compiles: a call with others is refused, on every path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._prims_common import is_contiguous
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional

import trtcache
from tests.guards.cases import outcomes
from trtcache.backends.aot_inductor.assumptions import _without_layout_guards
from trtcache.backends.aot_inductor.loader import ASSUMPTIONS, Assumptions
from trtcache.errors import GuardError, IncompatibleEngineError
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PICTURE = torch.randn(3, 2, 6, 8)
SHAPES = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)


class Pooling(nn.Module):
    """Operators for which Inductor unrolls windows, or takes the smaller of two sizes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return means of windows and a diagonal."""
        return functional.adaptive_avg_pool2d(x, 2), x[0, 0].diagonal() * 2


def pictures() -> list[tuple[torch.Tensor]]:
    """Return calls of the example's sizes with other batches, and of other sizes."""
    answered = [(1, 6, 8), (7, 6, 8), (3, 6, 8)]
    sizes = [*answered, (3, 7, 8), (3, 6, 9), (3, 16, 12), (3, 3, 5), (2, 1, 1), (3, 8, 6), (0, 6, 8)]
    return [(torch.rand(batch, 2, height, width),) for batch, height, width in sizes]


def held(module: Any) -> None:
    """Require that other batches are answered, that other pictures are not, and that nothing is wrong."""
    found = outcomes(module, Pooling(), pictures(), refused=GuardError)
    assert found["right"] >= 3
    assert found["refused"] >= 6


def test_every_path_is_held_to_it(engines: Path, tmp_path: Path) -> None:
    """A build, an alias, a program twice, a file, a loaded program and parts of one."""
    for _ in range(2):
        module = trtcache.compile(Pooling(), (PICTURE,), dynamic_shapes=SHAPES, cache=engines)
        held(module)
    program = torch.export.export(Pooling(), (PICTURE,), dynamic_shapes=SHAPES)
    for _ in range(2):
        held(trtcache.compile(program, cache=engines))
    torch.export.save(program, tmp_path / "model.pt2")
    for _ in range(2):
        held(trtcache.compile(tmp_path / "model.pt2", cache=engines))
    trtcache.export(module, tmp_path / "program.pt2")
    held(trtcache.load(tmp_path / "program.pt2", trust="local-file"))
    settings = {"torch_executed_ops": ["aten.mul"]}
    divided = trtcache.compile(Pooling(), (PICTURE,), dynamic_shapes=SHAPES, cache=engines, settings=settings)
    assert divided.report.left
    held(divided)
    with divided.runners(2) as runners, pytest.raises(GuardError):
        runners.submit(torch.rand(3, 2, 16, 12)).result()


def test_an_example_of_other_sizes_gets_an_engine_of_its_own(engines: Path, tmp_path: Path) -> None:
    """Each example is answered, by its alias too; sizes about which nothing was assumed are not in the key."""
    examples = [torch.rand(3, 2, 6, 8), torch.rand(3, 2, 7, 9), torch.rand(5, 2, 7, 9)]
    first = trtcache.key(Pooling(), (examples[0],), dynamic_shapes=SHAPES)
    keys = [first]
    for again in (False, True):
        for example in examples:
            module = trtcache.compile(Pooling(), (example,), dynamic_shapes=SHAPES, cache=engines)
            (part,) = module.report.partitions
            assert not again or (module.report.outcome, module.report.route) == ("hit", "alias")
            torch.testing.assert_close(module(example), Pooling()(example))
            keys.append(part.key)
    assert keys[1:4] == keys[4:]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    parts: Any = keys[2].document["parts"]
    assert parts["example_sizes"] == [[1, 7], [2, 9]]
    program = torch.export.export(Pooling(), (examples[1],), dynamic_shapes=SHAPES)
    torch.export.save(program, tmp_path / "model.pt2")
    for _ in range(2):
        loaded = trtcache.compile(tmp_path / "model.pt2", cache=engines)
        assert (loaded.report.outcome, loaded.report.partitions[0].key) == ("hit", keys[2])
        torch.testing.assert_close(loaded(examples[1]), Pooling()(examples[1]))


def test_takes_says_what_a_call_does(engines: Path, tmp_path: Path) -> None:
    """Sizes that Inductor took for numbers are not taken with others, also by an engine for concurrent calls."""
    module = trtcache.compile(Pooling(), (PICTURE,), dynamic_shapes=SHAPES, cache=engines)
    for _ in range(2):
        assert module.takes(torch.rand(7, 2, 6, 8))
        assert not module.takes(torch.rand(3, 2, 16, 12))
        with module.runners(2):
            pass
    trtcache.export(module, tmp_path / "program.pt2")
    program = trtcache.load(tmp_path / "program.pt2", trust="local-file", outputs="torch")
    assert not isinstance(program, trtcache.CompiledModule)
    assert program.takes(torch.rand(7, 2, 6, 8))
    assert not program.takes(torch.rand(3, 2, 16, 12))


def test_a_build_leaves_the_program_as_it_was(engines: Path) -> None:
    """Sizes that vary in a program still vary after Inductor took them for numbers."""
    program = torch.export.export(Pooling(), (PICTURE,), dynamic_shapes=SHAPES)
    first = trtcache.compile(program, cache=engines)
    assert trtcache.compile(program, cache=engines).interface.inputs == first.interface.inputs
    assert all(isinstance(first.interface.inputs[0].shape[dim], dict) for dim in (0, 2, 3))


def test_an_entry_of_before_is_built_again(tmp_path: Path) -> None:
    """An entry without what Inductor assumed is not used where a size could have been taken for a number."""
    trtcache.compile(Pooling(), (PICTURE,), dynamic_shapes=SHAPES, cache=tmp_path)
    store = DiskStore.open(tmp_path)
    (digest,) = (one.digest for one in store.scan() if store.header(one.digest).kind == "aot_inductor")
    header = store.header(digest)
    entry = store.get(header.key)
    assert isinstance(entry, Entry)
    document = json.loads(bytes(entry.read(ASSUMPTIONS)))
    assert ["Eq", 6, {"sym": 1}] in document["guards"]
    content: dict[str, Any] = {name: bytes(entry.read(name)) for name in entry.members if name != ASSUMPTIONS}
    store.put(header.key, content, kind=header.kind, name=header.name)
    for _ in range(2):
        module = trtcache.compile(Pooling(), (PICTURE,), dynamic_shapes=SHAPES, cache=tmp_path)
        held(module)
    assert module.report.partitions[0].outcome == "hit"


def test_a_long_sum_is_not_held_to_the_size_of_the_example(engines: Path) -> None:
    """Inductor asks whether a sum has more than 4,096 terms only to make it more precise."""
    model = Summing()
    module = trtcache.compile(model, (torch.randn(4, 6),), dynamic_shapes=({0: Dim.DYNAMIC, 1: None},), cache=engines)
    x = torch.rand(5000, 6)
    torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-4)


def test_pictures_of_other_sizes_are_pooled(engines: Path) -> None:
    """What Inductor asks about the layout of pictures is no assumption about their sizes."""
    model = MaxPooling()
    shapes = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    module = trtcache.compile(model, (torch.rand(4, 2, 12, 12),), dynamic_shapes=shapes, cache=engines)
    sizes = [(1, 4, 4), (3, 5, 9), (20, 8, 4), (5, 30, 31)]
    found = outcomes(module, model, [(torch.rand(batch, 2, *size),) for batch, *size in sizes])
    # torch 2.11 exports the windows for even sides only.
    assert (found["right"], found["refused"]) == ((len(sizes), 0) if torch.__version__ >= "2.13" else (2, 2))


class MaxPooling(nn.Module):
    """A convolution and windows."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the largest of each window."""
        return functional.max_pool2d(self.convolution(x), 2) * 2


class Summing(nn.Module):
    """A sum over a size that varies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sums of columns and of all."""
        return x.sum(0) + x.mean()


def test_members_are_read() -> None:
    """A static entry of before has no member and needs none; one with operators that assume nothing neither."""
    interface = {"sizes": [[2, None]]}
    members = {"interface.json": json.dumps(interface).encode(), "graph.json": b'["aten.mm.default"]'}
    assert Assumptions.of(members.__getitem__) is None
    members["graph.json"] = b'["aten.diagonal.default"]'
    with pytest.raises(IncompatibleEngineError, match="build it again"):
        Assumptions.of(members.__getitem__)
    assert Assumptions.of({"interface.json": b'{"sizes": []}'}.__getitem__) is None
    empty: dict[str, bytes] = {}
    assert Assumptions.of(empty.__getitem__) is None
    document = {"inputs": [[["Add", 1, {"sym": 0}], {"sym": 1}], [{"sym": 0}]], "guards": [["Eq", 4, {"sym": 0}]]}
    found = Assumptions.of({ASSUMPTIONS: json.dumps(document).encode()}.__getitem__)
    assert found is not None
    found.check([torch.ones(5, 2), torch.ones(4)])
    with pytest.raises(GuardError, match=r"compiled for .* == 4; input1.shape\[0\] is 3"):
        found.check([torch.ones(4, 2), torch.ones(3)])


class Reading(nn.Module):
    """Operators that check in torch the numbers and sizes that they are given, and in compiled code do not."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return a picture of another size, a row, a quotient and the largest elements."""
        size = (y.shape[0], y.shape[1])
        resized = functional.interpolate(x[None, None], size=size, mode="bilinear", align_corners=True)
        return resized, x[n.item()] * 2, y.sum() + 12 // n.item(), y.max(0)[0]


def test_what_torch_checks_in_its_kernels(engines: Path) -> None:
    """An index out of range, a division by zero, a picture of one row and the largest of nothing are refused."""
    shapes = (None, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, None)
    args = (torch.rand(5, 6), torch.rand(4, 7), torch.tensor(3))
    module = trtcache.compile(Reading(), args, dynamic_shapes=shapes, cache=engines)
    numbers = [(4, 7, number) for number in (-7, -6, -5, -1, 0, 1, 4, 5, 9)]
    sizes = [*numbers, (2, 2, 3), (1, 7, 3), (7, 1, 3), (0, 7, 3), (9, 12, 2)]
    calls = [(torch.rand(5, 6), torch.rand(height, width), torch.tensor(n)) for height, width, n in sizes]
    found = outcomes(module, Reading(), calls, refused=Exception)
    assert found["right"] >= 5


class Sliced(nn.Module):
    """Slices whose sizes are those of the input where it is small."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return slices, and means of rows."""
        return x[:3] * 2, x[-5:] + 1, x.mean(1)


@pytest.mark.parametrize("usual", [1, 4])
def test_slices_of_an_input_with_a_range(engines: Path, usual: int) -> None:
    """A slice beyond a small input is right or refused; sizes on the example's side of it are answered."""
    example = trtcache.Input(min_shape=(1, 4), opt_shape=(usual, 4), max_shape=(9, 4))
    module = trtcache.compile(Sliced(), (example,), cache=engines)
    found = outcomes(module, Sliced(), [(torch.rand(size, 4),) for size in range(1, 10)])
    assert found["right"] >= 2


def symbolic(*sizes: int) -> tuple[torch.Tensor, Any]:
    """Return a fake tensor of sizes that vary, and the environment of their symbols."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    dims = [DimDynamic.DYNAMIC] * len(sizes)
    fake = mode.from_tensor(torch.rand(sizes), symbolic_context=StatelessSymbolicContext(dims))
    return fake, environment


def test_a_question_about_a_layout_adds_no_guard() -> None:
    """Layouts are right for all sizes; another comparison counts, after the same question for a layout too."""
    x, environment = symbolic(6, 4)
    other = x.new_empty((x.shape[0] - 3, x.shape[1] - 1))
    before = len(environment.guards)
    with _without_layout_guards(environment):
        assert is_contiguous(other)
        assert len(environment.guards) == before
        assert x.shape[0] - 3 != 1
    assert len(environment.guards) == before + 1


def test_a_layout_that_is_right_for_small_sizes_alone() -> None:
    """A size that is 1 in the example can have any stride, so that its layout is an assumption."""
    x, environment = symbolic(4, 4)
    column = x.new_empty_strided((4, x.shape[0] - 3), (1, x.shape[1] * 8))
    with _without_layout_guards(environment):
        assert is_contiguous(column)
    assert environment.guards

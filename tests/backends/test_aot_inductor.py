"""AOTInductor packages: every case in one build, state that calls change, varying sizes, targets and failures."""

from __future__ import annotations

import copy
import gc
import shutil
import subprocess
import zipfile
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.effects import has_effects
from torch._subclasses import FakeTensorMode

import trtcache
from tests import models
from tests.comparing import difference, mixed_results
from tests.models import Affine, Together, retrained
from trtcache.backends.aot_inductor import build, loader
from trtcache.errors import BuildError, IncompatibleEngineError, InputError, RunError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtcache.store.contract import Entry

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
X = torch.randn(3, 4)


def calls(cases: dict[str, models.Case], *, chosen: int = 0) -> dict[str, models.Call]:
    """Return one call of each case: the given one of those it has, in turn."""
    return {name: case.calls[chosen % len(case.calls)] for name, case in cases.items()}


@pytest.fixture(scope="module")
def together(engines: Path) -> tuple[dict[str, models.Case], Together, trtcache.CompiledModule]:
    """All cases, their one module, and its package."""
    cases = models.cases()
    # Calls of another form than the compiled one are tests/test_api.py's.
    cases = {name: replace(case, others=_of_one_form(case)) for name, case in cases.items()}
    module = Together(cases)
    return cases, module, trtcache.compile(module, (calls(cases),), cache=engines, name="together")


def _of_one_form(case: models.Case) -> tuple[models.Call, ...]:
    form = (len(case.args), list(case.kwargs))
    return tuple((args, kwargs) for args, kwargs in case.others if (len(args), list(kwargs)) == form)


@pytest.mark.parametrize("chosen", range(9))
def test_a_package_answers_as_the_models_do_in_every_layout(together: Any, chosen: int) -> None:
    """Transposed, sliced, expanded, conjugated and negated inputs give what eager gives."""
    cases, module, compiled = together
    call = calls(cases, chosen=chosen)
    assert difference(module(call), compiled(call)) is None


def test_a_refitted_package_is_the_other_model_and_then_the_first_again(together: Any) -> None:
    """Every weight of every layout and dtype follows a refit, and going back is bit by bit the same."""
    cases, module, compiled = together
    other = retrained(copy.deepcopy(module))
    call = calls(cases)
    first = compiled(call)
    compiled.refit(other)
    assert difference(other(call), compiled(call)) is None
    compiled.refit(module.state_dict())
    assert difference(first, compiled(call), tolerance=0.0) is None


def test_threads_see_one_set_of_weights_while_a_package_is_refitted(engines: Path) -> None:
    """Every call during refits has the old weights or the new ones, never a mix of both."""
    one, two = Affine(1.0), Affine(2.0)
    compiled = trtcache.compile(one, (X,), cache=engines)
    assert mixed_results(compiled, (one, two), X, seconds=1.0) == []


def test_weights_are_the_models_own_memory(engines: Path) -> None:
    """A change of the model in place is seen by its package, before and after a refit."""
    one, two = Affine(1.0), Affine(2.0)
    compiled = trtcache.compile(one, (X,), cache=engines)
    for model in (one, two):
        compiled.refit(model)
        with torch.no_grad():
            model.a.mul_(3)
        assert difference(model(X), compiled(X)) is None


def _regrow(model: nn.Module) -> None:
    """Free the memory of weights and allocate it again, with the same values."""
    for one in model.parameters():
        storage, values = one.untyped_storage(), one.detach().clone()
        size_bytes = storage.nbytes()
        storage.resize_(0)
        storage.resize_(size_bytes)
        one.data.copy_(values)


@pytest.mark.parametrize("count", [0, 2], ids=["module", "runners"])
@pytest.mark.parametrize(
    "move",
    [nn.Module.share_memory, lambda model: ForkingPickler.dumps(model.state_dict()), _regrow],
    ids=["share_memory", "pickle", "resize"],
)
def test_weights_whose_memory_moves_are_read_where_they_are(
    engines: Path, move: Callable[[nn.Module], object], count: int
) -> None:
    """An engine follows memory that is moved to be shared, or freed and allocated again."""
    model = Affine(2.0)
    compiled = trtcache.compile(model, (X,), cache=engines)
    if count:
        assert compiled.runners(count, intra=1).report.is_parallel
    compiled(X)
    move(model)
    filler = [torch.full((size,), 7.0) for size in (4, 16) for _ in range(64)]
    assert difference(model(X), compiled(X)) is None
    with torch.no_grad():
        model.a.mul_(3)
    assert difference(model(X), compiled(X)) is None
    del filler


@pytest.mark.parametrize("count", [0, 2], ids=["module", "runners"])
def test_a_weight_whose_memory_is_freed_is_an_error_until_it_has_some_again(engines: Path, count: int) -> None:
    """No call reads freed memory, and calls go on once the weight has memory."""
    model = Affine(2.0)
    compiled = trtcache.compile(model, (X,), cache=engines)
    if count:
        compiled.runners(count, intra=1)
    storage = model.b.untyped_storage()
    size_bytes = storage.nbytes()
    storage.resize_(0)
    for _ in range(2):
        with pytest.raises(RunError, match="the memory of a weight was freed"):
            compiled(X)
    storage.resize_(size_bytes)
    with torch.no_grad():
        model.b.fill_(4.0)
    assert difference(model(X), compiled(X)) is None


def test_results_outlive_the_weights_they_are_views_of(together: Any) -> None:
    """What a call returned stays right after the weights behind it were replaced and freed."""
    cases, module, compiled = together
    state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    name = "cases.weight_out.lin.weight"
    state[name] = torch.randn(8, 8)[::2, ::2]
    compiled.refit(state)
    expected = state.pop(name).clone()
    found = compiled(calls(cases))["weight_out"][0]
    compiled.refit(module)
    filler = [torch.zeros(4, 4) for _ in range(64)]
    assert torch.equal(found, expected)
    del filler


class Stateful(nn.Module):
    """Modules whose calls change their buffers, in one program."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = models.BatchNorm().train()
        self.cache = models.KeyValue()
        self.changing = models.Changing()

    def forward(self, x: torch.Tensor, position: torch.Tensor, changed: torch.Tensor, more: torch.Tensor) -> Any:
        return self.norm(x), self.cache(x, position), self.changing(changed, {"k": more})


def state_call(offset: int, *, transposed: bool = False) -> tuple[torch.Tensor, ...]:
    """Return arguments for one call of ``Stateful``."""
    changed = torch.arange(12.0).reshape(4, 3).t() if transposed else torch.arange(12.0).reshape(3, 4)
    return X + offset, (torch.arange(3) + offset) % 8, changed, torch.ones(4)


class Copies(nn.Module):
    """Copies of parts of one tensor."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the same part twice, parts that overlap, and a view of a copy beside a copy."""
        y, z = x * 2, x @ x
        views = y.t().contiguous().clone()[1:]
        return y[0].clone(), y[0].clone(), z[:2].clone(), z[1:3].clone(), views, y.t().contiguous().clone()


def test_results_that_are_copies_do_not_share_memory(engines: Path) -> None:
    """A caller may write into each."""
    x = torch.randn(4, 4)
    compiled = trtcache.compile(Copies(), (x,), cache=engines)
    expected = Copies()(x)
    results = compiled(x)
    for number, result in enumerate(results):
        torch.testing.assert_close(result, expected[number])
        result.fill_(number)
    assert all((result == number).all() for number, result in enumerate(results))


@torch.no_grad()
def test_state_evolves_as_in_the_model_and_in_private(engines: Path) -> None:
    """Calls change copies: outputs follow eager's call by call, before and after a refit, and the model's own stay."""
    torch.manual_seed(1)
    model = Stateful()
    eager, kept = copy.deepcopy(model), copy.deepcopy(dict(model.named_buffers()))
    compiled = trtcache.compile(model, state_call(0), cache=engines)
    for offset in range(3):
        ours, theirs = state_call(offset, transposed=offset == 1), state_call(offset, transposed=offset == 1)
        assert difference(eager(*theirs), compiled(*ours)) is None
        assert difference(theirs, ours) is None
    assert all(torch.equal(kept[name], buffer) for name, buffer in model.named_buffers())
    compiled.refit(eager)
    assert difference(eager(*state_call(5)), compiled(*state_call(5))) is None
    for buffer in compiled.state_dict().values():
        buffer.share_memory_()  # moves the copies
    assert difference(eager(*state_call(6)), compiled(*state_call(6))) is None


def test_random_numbers_are_drawn_at_each_call_by_torchs_generator(engines: Path) -> None:
    """Two calls differ, two draws in a call differ, and a seed gives the same numbers again."""
    compiled = trtcache.compile(models.Random(), (X,), cache=engines)
    first, second = compiled(X), compiled(X)
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    torch.manual_seed(3)
    third = compiled(X)
    torch.manual_seed(3)
    assert difference(third, compiled(X), tolerance=0.0) is None


class Draws(nn.Module):
    """Draws in another order than their results are used in, some for nothing, in place, and with attention."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, normal, unused = torch.rand(3, 4), torch.randn(3, 4), torch.rand(7)
        dropped = nn.functional.dropout(x, 0.5, training=True)
        written = torch.empty_like(x).exponential_()
        whole, _ = torch.randint(0, 9, (5,)), unused < 0.5
        rows = x[None, None]
        attended = nn.functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.5)
        chosen = torch.bernoulli(torch.full((4,), 0.5))
        return attended, chosen, whole, written * normal, dropped + first, torch.multinomial(x.softmax(-1), 2)


def test_random_numbers_are_those_of_eager_under_one_seed(engines: Path) -> None:
    """Each draw of two calls is the model's own, also after a draw that no result depends on."""
    model, drawn = Draws(), []
    compiled = trtcache.compile(model, (X,), cache=engines)
    for module in (model, compiled):
        torch.manual_seed(11)
        drawn.append([result for _ in range(2) for result in module(X)])
    assert difference(*drawn) is None


class Growing(nn.Module):
    """A batch of ``b`` rows and a vector of ``2 * b``."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.lin(x), y * 2, torch.cat([x, x]).sum(1) + y


def test_sizes_vary_in_their_range_and_nowhere_else(engines: Path) -> None:
    """A dynamic batch and a size derived from it work from least to most, in any layout; others are refused."""
    rows = torch.export.Dim("rows", min=1, max=16)
    model = Growing()
    shapes = ({0: rows}, {0: 2 * rows})
    compiled = trtcache.compile(model, (X, torch.randn(6)), dynamic_shapes=shapes, cache=engines)
    for size in (1, 2, 5, 16):
        x, y = torch.randn(4, size).t(), torch.randn(4 * size)[::2]
        assert difference(model(x, y), compiled(x, y)) is None
    for size, double in ((0, 0), (17, 34), (3, 5), (3, 8)):
        with pytest.raises(InputError, match=r"argument [xy]: expected"):
            compiled(torch.ones(size, 4), torch.ones(double))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.skipif(torch.__version__ < "2.13", reason="Inductor of torch 2.11 has no option for levels")
class Promoted(nn.Module):
    """Operators whose results Inductor computes in another dtype than torch, or cannot compile (torch 2.13)."""

    def forward(self, x: torch.Tensor, flags: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size, value, small = x.shape[0], number.item(), x.to(torch.uint8)
        clamped = x.clamp(max=size / 2), x.clamp_min(value), flags.clamp(max=size), x.clamp(-1, size / 3) * 2
        powers = torch.pow(2, x), torch.pow(2, small), torch.pow(x, size), torch.pow(size, x), torch.pow(2.5, x)
        truths = small.any(), small.all(), small[None].any(0), small[None].all(1, keepdim=True)
        sums = torch.add(flags, flags, alpha=2), torch.add(flags, ~flags, alpha=0), torch.add(flags, True, alpha=0)
        return *clamped, *powers, *truths, *sums


def test_results_have_the_dtypes_of_torch(engines: Path) -> None:
    """Also where Inductor would promote in another way, or return integers as floats."""
    model, n = Promoted(), torch.export.Dim("n", min=3, max=12)
    number = torch.tensor(2.5, dtype=torch.float64)
    compiled = trtcache.compile(
        model,
        (torch.arange(6), torch.arange(6) % 2 == 0, number),
        dynamic_shapes=({0: n}, {0: n}, None),
        cache=engines,
        name="promoted",
    )
    for size in (6, 7, 12):
        args = torch.arange(size), torch.arange(size) % 3 == 0, number + size
        expected, found = model(*args), compiled(*args)
        assert [one.dtype for one in found] == [one.dtype for one in expected]
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)


class Extremes(nn.Module):
    """Every way to ask for the greatest and the least element, of a vector and along each dimension of a matrix."""

    def forward(self, *tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        return [self._of(x) for x in tensors]

    def _of(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small, matrix = x[:16], torch.stack([x, x.flip(0), x ^ 1])
        one = x.max(), x.min(), x.amax(0), *x.aminmax(), x.argmax(), x.argmin(), small.max(), small.argmin()
        inner = *matrix.max(1), *matrix.min(1, keepdim=True), matrix.amin(1), matrix.argmax(1), *matrix.aminmax(dim=1)
        outer = *matrix.max(0), *matrix.min(0), matrix.amax(0), matrix.argmin(0), matrix.amax(), matrix.argmax()
        others = (
            x.cummax(0)[0],
            x.sort()[0],
            x.median(),
            x.topk(3)[0],
            (x == x.amax()).sum(),
            x - x.amin(),
            (x ^ 3).min(),
            (x > 0).prod(dtype=torch.int8),
            (x | 1).prod(dtype=torch.uint8),
            (matrix | 1).prod(1, dtype=torch.int8),
        )
        truths = matrix.t() > matrix.t()[5]
        return *one, *inner, *outer, *others, *truths.min(0), *truths.max(0), *truths.min(1), *truths.max(1)


def test_extremes_of_bytes_are_elements(engines: Path) -> None:
    """Of negative numbers, of positive ones and of those above 127: Inductor's vectors have zeros among them."""
    n = torch.export.Dim("n", min=20, max=200)
    model = Extremes()
    signed, unsigned = torch.arange(-100, -60, dtype=torch.int8), torch.arange(100, 140, dtype=torch.uint8)
    examples = signed, unsigned, signed.short(), signed[:33] + 105
    compiled = trtcache.compile(model, examples, dynamic_shapes=(({0: n}, {0: n}, {0: n}, None),), cache=engines)
    for size in (40, 20, 31, 32, 33, 64, 100, 128):
        places = torch.arange(size) * 7 % 59
        x, y = (places - 100).to(torch.int8), (places + 100).to(torch.uint8)
        for given in ((x, y, x.short(), examples[3]), (places.to(torch.int8) + 5, y // 2, -x.short(), -examples[3])):
            for ours, theirs in zip(compiled(*given), model(*given), strict=True):
                assert [one.dtype for one in ours] == [one.dtype for one in theirs]
                assert [one.tolist() for one in ours] == [one.tolist() for one in theirs]


class Remainders(nn.Module):
    """Remainders by a number and by a tensor, of each floating-point dtype."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, half: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = x % 3, x % 6.2831855, x % 0.1, x % -3, x.int() % 2.5, x.long() % 7
        tensors = x % y, 7.5 % x, x.double() % y, torch.fmod(x, y)
        halves = half % 3, half % half.flip(0), half % 0.1, half.fmod(0.1), half.fmod(-0.7), 0.7 % half
        return *numbers, *tensors, *halves


def test_remainders_are_below_the_divisor(engines: Path) -> None:
    """Also of large quotients: ``99999992 % 3`` was 0 and ``50331649 % 6.2831855`` was 8, from rounded quotients."""
    model = Remainders()
    torch.manual_seed(0)
    x = torch.cat([torch.tensor([99999992.0, 50331649.0, 123456.7, -7.5, 6.0, -6.0, 1e9]), torch.randn(93) * 1e6])
    y = torch.where(x.flip(0) > 0, 0.3, -6.2831855) * torch.rand(100).add(0.5)
    for case in (x, y, x.bfloat16()), (x * 8, -y, (x / 9).bfloat16()):
        compiled = trtcache.compile(model, (x, y, x.bfloat16()), cache=engines)
        for ours, theirs in zip(compiled(*case), model(*case), strict=True):
            assert ours.dtype is theirs.dtype
            assert torch.equal(ours, theirs)


def test_an_output_of_another_dtype_is_an_error(interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that computes an operator in another dtype is noticed in the first call."""
    compiled = trtcache.compile(Affine(), (X,), backend=interpreter)
    engine = compiled._swap.engine
    monkeypatch.setattr(type(engine), "run", lambda _, inputs: [inputs[0].double()])
    with pytest.raises(RunError, match="its output 0 is float64, and the program's is float32"):
        compiled(X)


def test_a_named_level_has_no_instructions_beyond_it(tmp_path: Path) -> None:
    """A package for x86-64-v3 has no 512-bit registers in it, whatever machine built it."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Softmax(-1))
    x = torch.randn(8, 64)
    compiled = trtcache.compile(model, (x,), target="x86-64-v3", cache=tmp_path / "c")
    assert difference(model(x), compiled(x)) is None
    assert "x86-64-v3" in str(compiled.report)
    code = _disassembled(stored_engine(compiled, tmp_path / "c"), tmp_path)
    assert "%ymm" in code
    assert "%zmm" not in code


def test_a_named_level_that_inductor_cannot_build_for_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with torch 2.11; the error says what to do."""
    left = [name for name in build.known_options() if name != "cpp.march"]
    monkeypatch.setattr(build, "known_options", lambda: left)
    with pytest.raises(BuildError, match=r"target='x86-64': Inductor of torch .* has no option cpp\.march; build with"):
        trtcache.compile(nn.Linear(4, 4), (torch.randn(2, 4),), target="x86-64", cache=tmp_path / "c")


def stored_engine(compiled: trtcache.CompiledModule, root: Path) -> bytes:
    """Return the package that a compiled module was loaded from."""
    entry = trtcache.Cache(root).get(compiled.report.partitions[0].key)
    assert entry is not None
    return bytes(entry.read("engine"))


def _disassembled(package: bytes, folder: Path) -> str:
    (folder / "p.pt2").write_bytes(package)
    with zipfile.ZipFile(folder / "p.pt2") as archive:
        (library,) = (name for name in archive.namelist() if name.endswith(".so"))
        (folder / "p.so").write_bytes(archive.read(library))
    done = subprocess.run(["objdump", "-d", str(folder / "p.so")], capture_output=True, text=True, check=True)
    return done.stdout


def _solves(lin: nn.Linear, x: torch.Tensor) -> Any:
    matrix = x.t() @ x
    torch.linalg.solve(matrix, lin.weight)  # only its check has an effect
    return torch.linalg.inv(matrix), torch.linalg.cholesky(matrix), torch.linalg.solve(matrix, lin.weight)


@pytest.mark.skipif(
    not has_effects(torch.ops.aten._linalg_check_errors.default),
    reason="this torch leaves out such checks",
)
def test_a_singular_matrix_is_an_error_as_in_torch(engines: Path) -> None:
    """Checks of linear algebra are in the engine; the message is torch's, without the C++ frames that follow it."""
    model, x = models.Calls(_solves), torch.randn(6, 4)
    module = trtcache.compile(model, (x,), cache=engines, name="solves")
    assert difference(model(x), module(x)) is None
    with pytest.raises(torch.linalg.LinAlgError, match="input matrix is singular"):
        model(torch.zeros(6, 4))
    with pytest.raises(RunError, match="input matrix is singular") as caught:
        module(torch.zeros(6, 4))
    assert "frame #" not in str(caught.value)
    assert difference(model(x + 1), module(x + 1)) is None


@pytest.fixture
def affine(engines: Path) -> tuple[bytes, dict[str, torch.Tensor]]:
    """The package of ``Affine`` and weights for it."""
    compiled = trtcache.compile(Affine(), (X,), cache=engines)
    weights = {f"w{index}": torch.ones(shape) for index, shape in enumerate(_shapes(compiled, engines))}
    return stored_engine(compiled, engines), weights


def _shapes(compiled: trtcache.CompiledModule, root: Path) -> list[tuple[int, ...]]:
    program = trtcache.lower(Affine(), (X,))
    assert compiled.report.partitions[0].weights == 3
    return [slot.shape for slot in program.interface.slots]


def _hide_idle_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the loaders that engines before have left."""
    gc.collect()
    monkeypatch.setattr(loader, "_IDLE", {})


def test_a_package_with_a_weight_unset_is_never_handed_out(affine: tuple[bytes, dict[str, torch.Tensor]]) -> None:
    """Running it would end the process, so loading and refitting refuse."""
    content, weights = affine
    package = loader.Package(content, CPU)
    few = {name: tensor for name, tensor in weights.items() if name != "w1"}
    with pytest.raises(IncompatibleEngineError, match="w1"):
        loader.PackageEngine(package, {}, few)
    engine = loader.PackageEngine(package, {}, weights)
    with pytest.raises(IncompatibleEngineError, match="w1"):
        engine.refit(few)
    assert difference([X @ torch.ones(4, 4) + 1, torch.ones(4)], engine.run([X])) is None


def test_refits_use_loaders_again(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is loaded once for each engine that exists at the same time, and an engine in use keeps its loader."""
    _hide_idle_loaders(monkeypatch)
    compiled = trtcache.compile(Affine(), (X,), cache=engines)
    opened: list[object] = []
    open_loader = loader.open_loader
    monkeypatch.setattr(loader, "open_loader", lambda *args: [opened.append(args), open_loader(*args)][1])
    first = compiled._swap.engine
    for value in (2.0, 3.0, 4.0, 5.0):
        compiled.refit(Affine(value))
        assert difference(Affine(value)(X), compiled(X)) is None
        assert difference(Affine()(X), tuple(first.run([X]))) is None
    assert len(opened) == 2
    del first
    for value in (2.0, 3.0, 4.0, 5.0):
        compiled.refit(Affine(value))
        assert difference(Affine(value)(X), compiled(X)) is None
    assert len(opened) == 2


def test_memory_of_weights_is_freed_with_their_engine(run_python: Callable[..., Any], engines: Path) -> None:
    """50 refits, copies and loads of 16 MB of weights leave less than 64 MB in use, and no file open."""
    done = run_python(
        f"""
        import copy, ctypes, gc, os
        from pathlib import Path
        import torch, trtcache
        malloc, linear, x = ctypes.CDLL(None), torch.nn.Linear(2000, 2000).eval(), torch.randn(1, 2000)
        compiled = trtcache.compile(linear, (x,), cache={str(engines)!r}, name="memory")
        def new_weights(): return {{name: one.detach().clone() for name, one in linear.named_parameters()}}
        def used_mb():
            gc.collect()
            malloc.malloc_trim(0)
            return int(Path("/proc/self/statm").read_text().split()[1]) >> 8
        def growth(action):
            action()
            used, files = used_mb(), len(os.listdir("/proc/self/fd"))
            for _ in range(50):
                action()
            return used_mb() - used, len(os.listdir("/proc/self/fd")) - files
        def refit(): compiled.refit(new_weights()) and compiled(x)
        found = {{"refit": growth(refit), "copy": growth(lambda: copy.deepcopy(compiled)(x))}}
        with __import__("tempfile").TemporaryDirectory() as folder:
            trtcache.export(compiled, f"{{folder}}/linear.pt2")
            def load(outputs): return trtcache.load(f"{{folder}}/linear.pt2", trust="local-file", outputs=outputs)
            found["load"] = growth(lambda: load(None)(x))
            program = load("numpy")
            found["program"] = growth(lambda: program.refit(new_weights()) and program(x.numpy()))
            found["load program"] = growth(lambda: load("numpy")(x.numpy()))
        compiled.runners(2).close()
        found["parallel refit"] = growth(refit)
        print({{name: one for name, one in found.items() if one[0] >= 64 or one[1] > 0}})
        """
    )
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stdout + done.stderr


def test_an_output_that_is_an_alias_of_a_weight_outlives_it() -> None:
    """It shares the weight's memory, also after the engine's own tensor of it has been emptied."""
    weight = torch.ones(4)
    aliases = loader.Aliases({"w0": weight})
    output, returned = aliases.replace_in([X, aliases.tensors["w0"]])
    aliases.empty()
    assert output is X
    assert (returned.data_ptr(), returned.tolist()) == (weight.data_ptr(), [1.0] * 4)
    assert weight._version == 0


def test_a_released_package_is_not_loaded_again(
    affine: tuple[bytes, dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one of the same bytes takes its loader, with weights of its own; two at once have two loaders."""
    content, ones = affine
    _hide_idle_loaders(monkeypatch)
    opened: list[object] = []
    open_loader = loader.open_loader
    monkeypatch.setattr(loader, "open_loader", lambda *args: [opened.append(args), open_loader(*args)][1])

    def load(value: float) -> loader.PackageEngine:
        weights = {name: tensor * value for name, tensor in ones.items()}
        engine = loader.PackageEngine(loader.Package(content, CPU), {}, weights)
        expected = [X @ torch.full((4, 4), value) + value, torch.full((4,), value)]
        assert difference(expected, engine.run([X])) is None
        return engine

    for value in (1.0, 2.0, 1.0):
        load(value)
        assert len(opened) == 1
    engines = [load(1.0), load(2.0)]
    assert len(opened) == 2
    assert difference([X @ torch.ones(4, 4) + 1, torch.ones(4)], engines[0].run([X])) is None


@pytest.mark.parametrize("mode", [torch.inference_mode, FakeTensorMode])
def test_an_engine_may_go_inside_a_mode(affine: tuple[bytes, dict[str, torch.Tensor]], mode: Callable[[], Any]) -> None:
    """Its weights, some of inference mode, stay as they are if garbage is collected in a mode of torch."""
    content, weights = affine
    with torch.inference_mode():
        weights["w1"] = weights["w1"].clone()
    engine = loader.PackageEngine(loader.Package(content, CPU), {}, weights)
    aliases = engine._loaded._aliases.tensors
    with mode():
        del engine
    assert [one.numel() for one in aliases.values()] == [0] * len(aliases)
    again = loader.PackageEngine(loader.Package(content, CPU), {}, weights)
    assert difference([X @ torch.ones(4, 4) + 1, torch.ones(4)], again.run([X])) is None


def test_the_public_loader_is_asked_where_the_private_one_is_missing(
    affine: tuple[bytes, dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``torch._C._aoti.AOTIModelPackageLoader`` or with another signature, an engine loads all the same."""
    _hide_idle_loaders(monkeypatch)
    content, weights = affine
    asked: list[object] = []

    class Changed(torch._C._aoti.AOTIModelPackageLoader):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            asked.append(args)
            if len(asked) == 1:
                raise TypeError("another signature")
            super().__init__(*args)

    monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", Changed)
    engine = loader.PackageEngine(loader.Package(content, CPU), {}, weights)
    assert len(asked) == 2
    assert difference([X @ torch.ones(4, 4) + 1, torch.ones(4)], engine.run([X])) is None


@pytest.mark.parametrize("junk", [b"", b"PK junk", b"PK\x05\x06" + bytes(18)])
def test_junk_is_no_package(junk: bytes) -> None:
    """What torch cannot open is an IncompatibleEngineError with its reason."""
    with pytest.raises(IncompatibleEngineError, match="cannot load"):
        loader.Package(junk, CPU).open()


def test_a_package_that_does_not_load_is_built_again_and_counted(tmp_path: Path, engines: Path) -> None:
    """A sound entry with an engine of no use is put aside under ``load``, and the next one is used."""
    good = trtcache.compile(Affine(), (X,), cache=engines).report.partitions[0].key
    cache = trtcache.Cache(tmp_path / "c")
    entry: Entry = cache.get_or_build_key(good, lambda: {"engine": b"PK junk"})
    assert entry.path is not None
    compiled = trtcache.compile(Affine(), (X,), cache=cache)
    assert (compiled.report.partitions[0].outcome, compiled.report.partitions[0].reason) == ("built", "load")
    assert difference(Affine()(X), compiled(X)) is None
    assert cache.store is not None
    assert [event.reason for event in cache.store.events.read() if event.event == "reject"] == ["load"]


def test_a_missing_compiler_is_named(run_python: Callable[..., Any], tmp_path: Path) -> None:
    """Without a C++ compiler the build fails with a sentence that says so."""
    done = run_python(
        """
        import torch, trtcache
        from trtcache.errors import BuildError
        try:
            trtcache.compile(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
        except BuildError as error:
            print(error)
        """,
        CXX="/nonexistent/g++",
        TRTCACHE_DIR=str(tmp_path / "c"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
    assert "no C++ compiler was found" in done.stdout, done.stderr


def test_an_unknown_option_of_inductor_is_named(tmp_path: Path) -> None:
    """A misspelt Inductor option is refused before anything is compiled."""
    with pytest.raises(SettingsError, match="did you mean 'max_autotune'"):
        trtcache.compile(Affine(), (X,), settings={"inductor": {"max_autotun": True}}, cache=tmp_path / "c")

"""Programs without torch answer as compiled modules do, bit for bit: in this process, and in ones without torch."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils import _pytree as pytree

import trtcache
from tests.bundle.plain_models import FAST, Copies, Subject, subjects
from tests.effort import TORTURE
from tests.models import nested_tensor, retrained
from trtcache.backends.host import HostWeights
from trtcache.errors import InputError, RefitError, RunError, SettingsError, WeightsFileError
from trtcache.runtime import program as programs
from trtcache.runtime.argument_order import Output
from trtcache.runtime.program import Program
from trtcache.weights.arrays import HostArray, UnreadableArrayError, array_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import RunPython

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
NAMES = ("nested", "dtypes", "sizes", "changing", "scaled", "folded")
CALLS = 10_000 if TORTURE else 1000
LOADS = 10_000 if TORTURE else 200

RUN = """
import pickle, sys
import numpy as np
import trtcache
assert "torch" not in sys.modules
folder, name = sys.argv[1:]
program = trtcache.load(f"{folder}/{name}.pt2", trust="local-file")
assert type(program).__name__ == "Program", program.report
with open(f"{folder}/{name}.calls", "rb") as file:
    calls = pickle.load(file)
made = [(program(*args, **kwargs), (args, kwargs)) for args, kwargs in calls]
unwanted = [one for one in ("torch", "sympy", "trtcache.runtime.module") if one in sys.modules]
assert not unwanted, unwanted
assert program.report.torch == "not used", program.report
with open(f"{folder}/{name}.made", "wb") as file:
    pickle.dump(made, file)
"""

LOADED_MEANWHILE = """
import sys
from importlib.machinery import ExtensionFileLoader
from trtcache.bundle import load

def extensions():
    specs = [getattr(one, "__spec__", None) for one in sys.modules.values()]
    return {one.name for one in specs if one is not None and isinstance(one.loader, ExtensionFileLoader)}

preload, before = load.preload, set()

def watched():
    thread = preload()
    before.update(extensions())
    return thread

load.preload = watched
load.load(sys.argv[1], trust="local-file")
assert before
assert extensions() <= before, sorted(extensions() - before)
"""


@pytest.fixture(scope="module")
def known() -> dict[str, Subject]:
    """The models with their calls."""
    return subjects()


@pytest.fixture(scope="module")
def folder(known: dict[str, Subject], engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of each model, exported, and the compiled modules' weights."""
    made = tmp_path_factory.mktemp("plain")
    for name in NAMES:
        subject = known[name]
        torch.manual_seed(1)
        model = subject.model()
        args, kwargs = copy.deepcopy(subject.calls[0])
        module = trtcache.compile(
            model, args, kwargs, dynamic_shapes=subject.shapes, settings=subject.settings, cache=engines
        )
        trtcache.export(module, made / f"{name}.pt2")
        (made / f"{name}.calls").write_bytes(pickle.dumps([to_numpy(copy.deepcopy(one)) for one in subject.calls]))
    return made


def to_numpy(tree: Any) -> Any:
    """Return arrays of NumPy in place of tensors."""
    return pytree.tree_map_only(torch.Tensor, _array, tree)


def _array(tensor: torch.Tensor) -> np.ndarray:
    plain = tensor.detach().resolve_conj()
    if plain.dtype is torch.bfloat16:
        return plain.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return plain.numpy()


def assert_same(made: Any, expected: Any) -> None:
    """Compare trees of arrays or tensors: structure, types, dtypes, shapes and bits."""
    (mine, nested), (theirs, wanted) = pytree.tree_flatten(to_numpy(made)), pytree.tree_flatten(to_numpy(expected))
    assert nested == wanted
    for one, other in zip(mine, theirs, strict=True):
        assert type(one) is type(other)
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert one.tobytes() == other.tobytes()
        else:
            assert one == other


def expected_of(folder: Path, subject: Subject, name: str) -> list[Any]:
    """Return what the module of torch answers to a subject's calls, with the arguments afterwards."""
    module = trtcache.load(folder / f"{name}.pt2", trust="local-file")
    assert isinstance(module, trtcache.CompiledModule)
    calls = copy.deepcopy(subject.calls)
    return [(copy.deepcopy(module(*args, **kwargs)), (args, kwargs)) for args, kwargs in calls]


def plain(folder: Path, name: str, outputs: str = "numpy") -> Program:
    """Load a program without torch in this process."""
    program = trtcache.load(folder / f"{name}.pt2", trust="local-file", outputs=outputs)
    assert isinstance(program, Program)
    return program


@pytest.mark.parametrize("name", NAMES)
def test_a_process_without_torch_answers_bit_for_bit(folder: Path, known: dict[str, Subject], name: str) -> None:
    """Inputs of NumPy, outputs of NumPy, changed inputs and buffers included; torch and sympy are not imported."""
    done = subprocess.run([sys.executable, "-c", RUN, str(folder), name], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    made = pickle.loads((folder / f"{name}.made").read_bytes())  # noqa: S301  # of the process above
    assert_same(made, expected_of(folder, known[name], name))


def test_no_extension_module_waits_for_torch_s_libraries(folder: Path) -> None:
    """The dynamic linker loads one library at a time: what else ``load`` needs is imported before torch's."""
    command = [sys.executable, "-c", LOADED_MEANWHILE, str(folder / "nested.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("outputs", ["numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_tensors_and_arrays_are_inputs(folder: Path, known: dict[str, Subject], name: str, outputs: str) -> None:
    """Both give the same bits, in either library of outputs, and are changed alike."""
    expected = expected_of(folder, known[name], name)
    for convert in (lambda one: one, to_numpy):
        program = plain(folder, name, outputs)
        for (args, kwargs), wanted in zip(copy.deepcopy(known[name].calls), expected, strict=True):
            given = convert((args, kwargs))
            made = program(*given[0], **given[1])
            kind = np.ndarray if outputs == "numpy" else torch.Tensor
            tensors = [one for one in pytree.tree_leaves(made) if hasattr(one, "dtype")]
            assert all(isinstance(one, kind) for one in tensors)
            assert_same((made, given), wanted)


def test_outputs_follow_the_inputs(folder: Path) -> None:
    """Tensors for tensors, arrays for arrays, and DLPack's objects for any other library."""
    program = plain(folder, "folded")
    program._outputs = None
    x = torch.randn(2, 3, 8, 8)
    expected = program(x)
    assert isinstance(expected, torch.Tensor)
    array = program(x.numpy())
    assert isinstance(array, np.ndarray)
    assert array.tobytes() == expected.numpy().tobytes()

    class Other:
        """An array of some library."""

        def __dlpack__(self, **_: Any) -> Any:
            return x.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    made = program(Other())
    assert torch.equal(torch.from_dlpack(made), expected)
    buffer = memoryview(x.numpy())
    assert program(buffer).tobytes() == expected.numpy().tobytes()


def test_bad_inputs_get_the_same_errors(folder: Path) -> None:
    """The same class and message as of the compiled module, and nothing runs."""
    module, program = trtcache.load(folder / "sizes.pt2", trust="local-file"), plain(folder, "sizes")
    ids, mask, freed = torch.randint(0, 50, (2, 7)), torch.randn(2, 7), torch.randn(2, 7)
    freed.untyped_storage().resize_(0)
    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((ids,), {}),
        ((ids, mask, mask), {}),
        ((ids, mask), {"extra": 1}),
        ((ids, mask.double()), {}),
        ((ids, mask[0]), {}),
        ((ids, mask[:, :5]), {}),
        ((ids[:1].expand(9, 7), mask[:1].expand(9, 7)), {}),
        ((ids[:, :1], mask[:, :1]), {}),
        ((3, mask), {}),
        ((ids, None), {}),
        ((ids, "text"), {}),
        ((ids, [mask]), {}),
        ((ids.to_sparse(), mask), {}),
        ((ids, nested_tensor()), {}),
        ((nested_tensor(), mask), {}),
        ((ids, freed), {}),
        ((ids, torch._efficientzerotensor((2, 7))), {}),
        ((ids, torch.empty(2, 7, device="meta")), {}),
    ]
    for args, kwargs in bad:
        with pytest.raises(InputError) as expected:
            module(*args, **kwargs)
        with pytest.raises(InputError) as found:
            program(*args, **kwargs)
        assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))
        assert not program.takes(*args, **kwargs)
    nested = plain(folder, "nested")
    wanted = trtcache.load(folder / "nested.pt2", trust="local-file")
    x, more = torch.randn(3, 4), {"b": [torch.ones(4)], "s": torch.tensor(2.0), "e": torch.empty(0, 3)}
    for args, kwargs in (
        ((x, more, 3), {}),
        ((x, more, 2), {"flag": False}),
        ((x, {**more, "b": []}, 2), {}),
        ((x, {**more, "b": (torch.ones(4),)}, 2), {}),
        ((x, {"b": 1}, 2), {}),
        ((x, {**more, "s": torch.ones(1)}, 2), {}),
        ((x, more, np.int64(2)), {}),
        ((x, more, np.ones(())), {}),
        ((x, more, torch.tensor(2)), {}),
        ((x, more, nested_tensor()), {}),
        ((x, more, 2), {"flag": b"yes"}),
    ):
        with pytest.raises(InputError) as expected:
            wanted(*args, **kwargs)
        with pytest.raises(InputError) as found:
            nested(*args, **kwargs)
        assert str(found.value) == str(expected.value)


def test_a_failed_check_of_the_engine_is_the_same_error(folder: Path, known: dict[str, Subject]) -> None:
    """With torch, without, and from runners; it is a ``RuntimeError``, as in eager torch."""
    (args, _), *_ = known["dtypes"].calls
    bad = [-one if one.dtype is torch.int64 else one for one in args]
    with pytest.raises(RuntimeError, match="Class values must be non-negative"):
        known["dtypes"].model()(*bad)
    module, program = trtcache.load(folder / "dtypes.pt2", trust="local-file"), plain(folder, "dtypes")
    assert isinstance(module, trtcache.CompiledModule)
    with module.runners(1) as runners:
        for call in (module, program, lambda *given: runners.submit(*given).result()):
            with pytest.raises(RunError) as raised:
                call(*bad)
            assert isinstance(raised.value, RuntimeError)
            assert str(raised.value) == "running aot_inductor: one_hot: Class values must be non-negative."
            assert pickle.loads(pickle.dumps(raised.value)).why == raised.value.why  # noqa: S301


def test_a_buffer_of_another_dtype_gets_a_hint_without_torch(folder: Path) -> None:
    """Its library need not be torch."""
    with pytest.raises(InputError, match=r"expected float32, got uint8; convert it to float32$"):
        plain(folder, "folded")(bytes(8))


def test_layouts_are_copied(folder: Path) -> None:
    """Strided, negative, misaligned, foreign-endian and read-only arrays give the answer of a contiguous one."""
    program = plain(folder, "folded")
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    expected = program(x).tobytes()
    misaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.zeros((2, 3, 16, 8), np.float32)
    wide[:, :, ::2] = x
    for given in (
        np.asfortranarray(x),
        np.ascontiguousarray(x[..., ::-1])[..., ::-1],
        x.astype(">f4"),
        misaligned,
        read_only,
        wide[:, :, ::2],
        np.broadcast_to(x, (2, 3, 8, 8)),
    ):
        assert np.array_equal(given, x)
        assert program(given).tobytes() == expected


def test_a_read_only_array_in_another_layout_stays_read_only(folder: Path) -> None:
    """The strides of a dimension of size 1 say nothing about memory, so the array is not copied."""
    check = plain(folder, "nested")._check
    array = array_of(np.frombuffer(bytes(16), np.float32)[None])
    assert array is not None
    spec = replace(check._inputs[0], shape=(1, 4), stride=(4, 1))
    found = check._lay_out(spec, replace(array, strides=(0, 1)), {})
    assert (found.strides, found.pointer, found.writable) == ((4, 1), array.pointer, False)
    assert not found.numpy().flags.writeable


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.complex128, torch.bool])
@pytest.mark.parametrize("writable", [True, False])
def test_an_output_of_any_dtype_becomes_a_tensor(dtype: torch.dtype, writable: bool) -> None:
    """Also of dtypes that NumPy lacks, and of memory that is read-only, of which it is a copy."""
    tensor = torch.randn(3, 4).to(dtype)
    array = array_of(tensor)
    assert array is not None
    found = programs.convert(replace(array, writable=writable), "torch")
    assert found.dtype is dtype
    assert (found.data_ptr() == tensor.data_ptr()) is writable
    assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))


def test_an_input_that_calls_change_is_writable_and_apart(folder: Path) -> None:
    """A read-only, overlapping or copied array is refused before anything runs."""
    program = plain(folder, "changing")
    x, state = np.ones((3, 4), np.float32), np.zeros(4, np.float32)
    frozen = state.copy()
    frozen.flags.writeable = False
    shared = np.ones((3, 4), np.float32)
    for args in ((x, frozen), (x, np.broadcast_to(np.float32(0), (4,))), (x, state[::-1]), (shared, shared[1])):
        with pytest.raises(InputError):
            program(*args)
    assert not state.any()
    program(x, state)
    assert (state == 3).all()


def test_outputs_outlive_inputs_and_programs(folder: Path) -> None:
    """An output that is the input's or a weight's memory keeps it alive; others own theirs."""
    program = plain(folder, "nested")
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    more = {"b": [np.ones(4, np.float32)], "s": np.array(2.0, np.float32), "e": np.empty((0, 3), np.float32)}
    expected = pytree.tree_map_only(np.ndarray, np.copy, program(x, more, 2))
    kept = program(x.copy(), more, 2)
    del program
    gc.collect()
    filler = [np.full((3, 4), 9.0, np.float32) for _ in range(1000)]
    assert_same(kept, expected)
    assert len(filler) == 1000


def test_a_result_is_not_the_memory_of_a_weight(engines: Path, tmp_path: Path) -> None:
    """A caller may write to it, with torch and without, after a refit with a read-only array as well."""
    model, x = Copies(), np.ones(4, np.float32)
    module = trtcache.compile(model, (torch.ones(4),), settings=FAST, cache=engines)
    trtcache.export(module, tmp_path / "copies.pt2")
    before, given = model.turn.numpy().copy(), model.turn.numpy() * 2
    given.flags.writeable = False
    loaded, refitted = plain(tmp_path, "copies"), plain(tmp_path, "copies")
    refitted.refit({"turn": given})
    calls = (lambda: to_numpy(module(torch.ones(4))), lambda: loaded(x), lambda: refitted(x))
    for call, expected in zip(calls, (before, before, before * 2), strict=True):
        for _ in range(2):
            made = call()
            assert np.array_equal(made[0], expected.view(np.float32).reshape(4, 2))
            for result in made[:3]:
                result[...] = 7
    assert np.array_equal(model.turn.numpy(), before)
    assert np.array_equal(given, before * 2)


class Keeping(torch.nn.Module):
    """Adds to the state that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state.add_(x)
        return state * self.w, x + 1


@pytest.fixture(scope="module")
def keeping(engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program of ``Keeping``."""
    folder = tmp_path_factory.mktemp("keeping")
    module = trtcache.compile(Keeping(), (torch.ones(4), torch.zeros(4)), settings=FAST, cache=engines)
    trtcache.export(module, folder / "keeping.pt2")
    return folder


def test_an_input_that_calls_change_is_not_the_memory_of_a_weight(keeping: Path) -> None:
    """The engine reads both before it writes, with torch and without; what is beside it is no such memory."""
    program, module = plain(keeping, "keeping"), trtcache.load(keeping / "keeping.pt2", trust="local-file")
    memory, x = np.full(8, 2, np.float32), np.ones(4, np.float32)
    weight, beside = memory[:4], memory[4:]
    program.refit({"w": weight})
    module.refit({"w": torch.from_numpy(weight)})
    for call, convert in ((program, np.asarray), (module, torch.from_numpy)):
        with pytest.raises(InputError, match=r"state: expected memory of its own: a call changes it, .* with a weight"):
            call(convert(x), convert(memory[2:6]))
        assert not call.takes(convert(x), convert(weight))
        assert (memory == 2).all()
        assert to_numpy(call(convert(x), convert(beside)))[0].tolist() == [6] * 4
        assert beside.tolist() == [3] * 4
        beside[...] = 2


def test_eight_threads_get_their_own_answers(folder: Path) -> None:
    """Many calls of 8 threads on one program are what one thread gets."""
    program = plain(folder, "sizes")
    random = np.random.default_rng(0)
    inputs = [
        (random.integers(0, 50, (1 + place, 3 + place)), random.standard_normal((1 + place, 3 + place), np.float32))
        for place in range(8)
    ]
    expected = [program(*one)[0].tobytes() for one in inputs]
    wrong: list[int] = []

    def call(place: int) -> None:
        answers = (program(*inputs[place])[0].tobytes() for _ in range(CALLS // 8))
        wrong.extend(place for answer in answers if answer != expected[place])

    threads = [threading.Thread(target=call, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_copy_is_refitted_on_its_own(folder: Path) -> None:
    """It shares the engine until then; a program is neither pickled nor copied with its weights."""
    program, x = plain(folder, "folded"), torch.randn(2, 3, 8, 8)
    model = subjects()["folded"].model()
    before = program(x)
    other = copy.copy(program)
    assert_same(other(x), before)
    other.refit({name: one * 2 for name, one in model.state_dict().items()})
    assert_same(program(x), before)
    after = other(x)
    program.refit(model.state_dict())
    assert_same(other(x), after)
    for action in (pickle.dumps, copy.deepcopy):
        with pytest.raises(pickle.PicklingError, match="load its file again"):
            action(program)


def test_refit_to_other_weights_and_back(folder: Path, tmp_path: Path) -> None:
    """A, B, A: the bits of the compiled module, from arrays, a safetensors file and a module; recipes included."""
    torch.manual_seed(1)
    model = subjects()["folded"].model()
    module = trtcache.load(folder / "folded.pt2", trust="local-file")
    program = plain(folder, "folded")
    x = torch.randn(2, 3, 8, 8)
    first = {name: one.clone() for name, one in model.state_dict().items()}
    other = dict(retrained(model).state_dict())
    save_file({name: one.clone() for name, one in other.items()}, tmp_path / "other.safetensors")
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "other.pt2")
    for weights, given in (
        (other, tmp_path / "other.safetensors"),
        (first, {name: one.numpy() for name, one in first.items()}),
        (other, tmp_path / "other.pt2"),
        (first, first),
    ):
        expected = module.refit(weights)
        done = program.refit(given)
        assert done.changed == expected.changed
        assert_same(program(x), module(x))
    freed = other["conv.weight"].clone()
    freed.untyped_storage().resize_(0)
    for broken in (
        {**other, "more": x},
        {name: one for name, one in other.items() if name != "conv.weight"},
        {**other, "conv.weight": freed},
        {**other, "conv.weight": torch._efficientzerotensor(freed.shape)},
        {**other, "conv.weight": nested_tensor()},
    ):
        with pytest.raises(RefitError) as wanted:
            module.refit(broken)
        with pytest.raises(RefitError) as found:
            program.refit(broken)
        assert str(found.value) == str(wanted.value)
    assert_same(program(x), module(x))
    damaged = bytearray((tmp_path / "other.pt2").read_bytes())
    damaged[damaged.index(other["conv.weight"].numpy().tobytes())] ^= 1
    (tmp_path / "damaged.pt2").write_bytes(damaged)
    for path, why in ((folder / "folded.pt2", "contains engines"), (tmp_path / "damaged.pt2", "member data/weights/")):
        with pytest.raises(WeightsFileError, match=why) as unread:
            module.refit(path)
        with pytest.raises(WeightsFileError) as refused:
            program.refit(path)
        assert str(refused.value) == str(unread.value)


def test_memory_of_a_given_tensor_that_moves_is_followed(folder: Path) -> None:
    """``share_memory_`` frees the old memory, which must not be read; nor may memory that was freed for good."""
    program, x = plain(folder, "folded"), torch.randn(2, 3, 8, 8)
    state = {name: one.clone() for name, one in subjects()["folded"].model().state_dict().items()}
    program.refit(state)
    before = program(x)
    places = {name: one.data_ptr() for name, one in state.items()}
    for one in state.values():
        one.share_memory_()
    assert places["one.weight"] != state["one.weight"].data_ptr()
    state["one.weight"].mul_(2)
    doubled = program(x)
    state["one.weight"].div_(2)
    assert_same(program(x), before)
    np.testing.assert_allclose(doubled, 4 * before, rtol=1e-5)  # it is the weight of two layers
    state["one.weight"].untyped_storage().resize_(0)
    with pytest.raises(RunError, match="was freed"):
        program(x)
    program.refit(subjects()["folded"].model().state_dict())
    assert_same(program(x), before)


def test_an_array_exports_a_copy_if_asked_to() -> None:
    """``numpy.from_dlpack(..., copy=True)`` shares no memory with it."""
    array = array_of(torch.arange(6.0).view(2, 3).t())
    assert array is not None
    shared, copied = (torch.from_dlpack(array.__dlpack__(copy=one)) for one in (None, True))
    array.numpy()[0, 0] = 7
    assert (float(shared[0, 0]), float(copied[0, 0])) == (7.0, 0.0)
    assert copied.stride() == shared.stride()


class Unversioned:
    """An object that exports an array as DLPack did before 1.0."""

    def __init__(self, array: HostArray) -> None:
        self.array = array

    def __dlpack__(self, **_: object) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_read_only_array_is_exported(dtype: torch.dtype) -> None:
    """As read-only where the consumer knows of that, else as a copy."""
    tensor = torch.arange(6.0).view(2, 3).t().to(dtype)
    array = array_of(tensor)
    assert array is not None
    array = replace(array, writable=False)
    copied = torch.from_dlpack(Unversioned(array))
    assert torch.equal(copied, tensor)
    assert copied.data_ptr() != tensor.data_ptr()
    if dtype is torch.float32:
        shared = np.from_dlpack(array)
        assert (shared.flags.writeable, shared.ctypes.data) == (False, tensor.data_ptr())


class Counting:
    """An engine whose calls are counted in an array, in place of torch's kernels as well."""

    def __init__(self, count: np.ndarray) -> None:
        self.count = count

    def run(self, _: object) -> list[Any]:
        self.count += 1
        return []

    def copy_into(self, target: HostArray, source: HostArray) -> None:
        target.numpy()[...] = source.numpy()


def test_no_change_of_state_is_lost_in_a_refit() -> None:
    """A call while the new engine is made changes the state that it begins with."""
    first, none = Counting(np.zeros(1)), HostWeights({})

    def renew(*_: object) -> programs.Renewed:
        second = Counting(first.count.copy())
        weights.run([])
        pairs = [(array_of(second.count), array_of(first.count))]
        return programs.Renewed(second, none, [], pairs)  # type: ignore[arg-type]  # arrays they are

    weights = programs.ProgramWeights(first, none, first, renew, is_mutated=True)  # type: ignore[arg-type]  # it copies
    weights.run([])
    weights.refit({})
    weights.run([])
    assert weights._engine.count.tolist() == [3]  # type: ignore[attr-defined]  # of Counting


def test_torch_may_be_imported_later_or_before(folder: Path) -> None:
    """In one process torch answers as before after a call without it, and the other way round."""
    code = f"""
import sys
import numpy as np
import trtcache
x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
path = {str(folder / "folded.pt2")!r}
program = trtcache.load(path, trust="local-file")
first = program(x)
assert "torch" not in sys.modules and isinstance(first, np.ndarray)
import torch
module = trtcache.load(path, trust="local-file")
assert type(module).__name__ == "CompiledModule"
made = module(torch.from_numpy(x))
assert made.numpy().tobytes() == first.tobytes() == program(x).tobytes()
tensor = program(torch.from_numpy(x))
assert isinstance(tensor, torch.Tensor) and torch.equal(tensor, made)
assert torch.equal(torch.nn.Linear(4, 4)(torch.ones(4)).detach() * 0, torch.zeros(4))
again = trtcache.load(path, trust="local-file", outputs="numpy")
assert again(x).tobytes() == first.tobytes() and again.report.torch == "not used"
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr


def test_a_forked_process_answers(folder: Path) -> None:
    """A child of a process that has called a program gets the same bits."""
    code = f"""
import os, sys
import numpy as np
import trtcache
x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
program = trtcache.load({str(folder / "folded.pt2")!r}, trust="local-file")
expected = program(x).tobytes()
child = os.fork()
if not child:
    os._exit(0 if program(x).tobytes() == expected else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert program(x).tobytes() == expected
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_memory_is_flat_over_loads(folder: Path) -> None:
    """Programs, engines, weights and outputs are freed."""
    code = f"""
import gc, os
import numpy as np
import trtcache
x = np.ones((2, 3, 8, 8), np.float32)
def load():
    program = trtcache.load({str(folder / "folded.pt2")!r}, trust="local-file")
    for _ in range(3):
        program(x)
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
for _ in range(50):
    load()
before = resident()
for _ in range({LOADS}):
    load()
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert int(done.stdout) < 8 << 20


def test_what_needs_torch_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with a part in torch imports it and reports why; with TRTCACHE_NO_TORCH=1 that is an error."""
    x = torch.randn(3, 4)
    module = trtcache.compile(
        torch.nn.Linear(4, 4), (x,), settings={"torch_executed_ops": ["aten.linear"]}, cache=tmp_path / "cache"
    )
    trtcache.export(module, tmp_path / "torch.pt2")
    code = f"""
import numpy as np
import trtcache
module = trtcache.load({str(tmp_path / "torch.pt2")!r}, trust="local-file")
print(type(module).__name__, module.report.torch)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert done.stdout.strip() == "CompiledModule it is not a single engine"
    environment = os.environ | {"TRTCACHE_NO_TORCH": "1"}
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, env=environment)
    assert "TorchForbiddenError: TRTCACHE_NO_TORCH=1 and" in refused.stderr
    with pytest.raises(SettingsError, match="outputs"):
        trtcache.load(tmp_path / "torch.pt2", trust="local-file", outputs="numpy")
    with pytest.raises(SettingsError, match="'nump': unknown; did you mean 'numpy'"):
        trtcache.load(tmp_path / "torch.pt2", trust="local-file", outputs="nump")
    monkeypatch.setenv("TRTCACHE_NO_TORCH", "1")  # torch is imported in this process
    assert isinstance(trtcache.load(tmp_path / "torch.pt2", trust="local-file"), trtcache.CompiledModule)


def test_outputs_do_not_import_torch(run_fresh_python: RunPython) -> None:
    """An output that is another program's input is no tensor of torch; torch is not imported where it is forbidden."""
    code = """
    import sys
    from trtcache.backends.aot_inductor.libtorch import libtorch
    from trtcache.errors import TorchForbiddenError
    from trtcache.runtime.program import convert, library_of
    array = libtorch().empty("float32", (2, 3), (3, 1))
    assert library_of({0: array}) == "dlpack"
    try:
        convert(array, "torch")
    except TorchForbiddenError:
        print("torch" in sys.modules)
    """
    assert run_fresh_python(code, TRTCACHE_NO_TORCH="1").stdout.strip() == "False"


def test_a_read_only_array_keeps_its_layout_in_torch() -> None:
    """It is copied, with the order of its elements in memory."""
    values = np.arange(6.0).reshape(3, 2).T
    values.flags.writeable = False
    array = array_of(values)
    assert array is not None
    made = programs.convert(array, "torch")
    assert made.stride() == (1, 2)
    assert torch.equal(made, torch.arange(6.0, dtype=torch.float64).reshape(3, 2).t())


def test_bfloat16_goes_through_dlpack_and_ml_dtypes() -> None:
    """Both have its bits, without a copy."""
    tensor = torch.randn(3, 4).bfloat16()
    array = array_of(tensor)
    assert array is not None
    assert array.numpy().dtype == ml_dtypes.bfloat16
    assert torch.equal(torch.from_dlpack(array), tensor)
    again = array_of(array.numpy())
    assert again is not None
    assert (again.dtype, again.shape, again.pointer) == ("bfloat16", (3, 4), tensor.data_ptr())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "float16", "uint8"])
def test_arrays_are_read_through_every_protocol(dtype: str) -> None:
    """NumPy, its array interface, DLPack and buffers describe the same memory."""
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)[:, ::2]
    found: list[HostArray | None] = [array_of(array), array_of(Interface(array))]
    found.append(array_of(torch.from_numpy(array)))
    if dtype not in {"complex64"}:  # memoryview has no such format
        found.append(array_of(memoryview(array)))
    places = {(one.dtype, one.shape, one.strides, one.pointer) for one in found if one is not None}
    assert places == {(dtype, (2, 2, 4), (12, 8, 1), array.ctypes.data)}
    assert array_of("text") is None
    assert array_of(3) is None


class Exporter:
    """An array of a library that knows DLPack only, of version 1.0 or of an earlier one."""

    def __init__(self, array: Any, *, versions: bool = True) -> None:
        self._array, self._versions = array, versions

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self._versions:
            raise TypeError("no argument is known")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Interface:
    """An object with an array interface only."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__, self._array = array.__array_interface__, array


class Both(Exporter, Interface):
    """An object with DLPack and an array interface."""

    def __init__(self, array: Any, *, versions: bool = True) -> None:
        Exporter.__init__(self, array, versions=versions)
        Interface.__init__(self, array)


def test_what_a_protocol_does_not_export_is_read_through_another(folder: Path) -> None:
    """Memory that is read-only, reversed or of another byte order gives the answer of a contiguous array."""
    program = plain(folder, "folded")
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    expected = program(x).tobytes()
    frozen, reverse, foreign = x.copy(), np.ascontiguousarray(x[::-1])[::-1], x.astype(">f4")
    frozen.flags.writeable = False
    misaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    ctypes_array = (ctypes.c_float.__ctype_be__ * x.size)(*x.ravel().tolist())  # type: ignore[attr-defined]
    for given in (
        Exporter(x),
        Exporter(x, versions=False),
        Exporter(frozen),
        Exporter(reverse),
        Exporter(misaligned),
        Both(frozen, versions=False),
        Both(foreign),
        memoryview(foreign),
    ):
        assert program.takes(given)
        assert program(given).tobytes() == expected
    array = array_of(ctypes_array)
    assert array is not None
    assert array.numpy().tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (Exporter(np.ones(2, ">f4")), "one that its library does not export: DLPack only supports native byte order"),
        (Interface(np.zeros(2, "M8[s]")), "an array of <M8\\[s\\]"),
        (Interface(np.zeros(2, object)), "an array of \\|O"),
        (memoryview(np.zeros(2, "f4,f4")), "a buffer of format"),
    ],
)
def test_an_array_that_cannot_be_read_is_named(given: Any, found: str) -> None:
    """The error is one that calls and ``takes`` turn into theirs."""
    with pytest.raises(UnreadableArrayError, match=found):
        array_of(given)


def test_a_scalar_of_numpy_is_not_written_to() -> None:
    """Its memory is a copy, so a call that changes it is an error."""
    scalar, array = array_of(np.float32(1)), array_of(np.zeros((), np.float32))
    assert scalar is not None
    assert array is not None
    assert (scalar.writable, array.writable) == (False, True)


class Masked(np.ma.MaskedArray):
    """A masked array of a class of its own."""


@pytest.mark.parametrize("value", [np.ma.masked_array(np.zeros(2)), np.zeros(2).view(Masked), np.ma.masked])
def test_masked_arrays_are_refused(value: Any) -> None:
    """Whatever their class: an engine would read what is masked."""
    with pytest.raises(UnreadableArrayError, match="a masked array"):
        array_of(value)


def test_ordered_outputs_and_their_replacements_keep_names() -> None:
    """An output of a class that is not imported has its names, as attributes and by index."""
    made: Mapping[str, Any] = Output(OrderedDict(first=1, second=2))
    assert (made["first"], made.second, made[1]) == (1, 2, 2)  # type: ignore[attr-defined,index]

"""The key of a partition: what parts two of them, and what does not."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.integrations.partitions import Small, partition, small
from tests.keys.pairs import interfaces, layers, tensors
from tests.keys.pairs.pair import Program, drawn, made
from trtcache.errors import CanonicalizationError
from trtcache.integrations.torch_tensorrt.installation import TorchTensorrt
from trtcache.integrations.torch_tensorrt.partition import converter_digest, converters_document, describe
from trtcache.integrations.torch_tensorrt.request import KNOWN, LEFT_OUT, Conversion, memory_gib, request_for
from trtcache.keys.graph_digest import graph_records
from trtcache.keys.stored_graph import StoredGraph
from trtcache.lowering.model_state import quiet
from trtcache.weights.fingerprints import Fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PARTS_CALLS_ONLY = {
    *("inputs: structure", "outputs: list", "outputs: names", "outputs: nesting", "outputs: one in a tuple"),
    "outputs: ordered mapping",
}
"""Pairs whose programs differ in how the call's arguments or results are nested: no partition has that in it, and
torch_tensorrt keeps it beside the engines."""

DIFFERENT = [*layers.pairs(), *tensors.pairs(), *interfaces.pairs()]
SAMPLE = [pair for number, pair in enumerate(DIFFERENT) if number % 13 == 0 and pair.name not in _PARTS_CALLS_ONLY]
"""Every thirteenth pair: all of them through torch_tensorrt's own lowering and partitioner take minutes (``real``)."""


@pytest.fixture
def keyed(provide: Callable[..., None]) -> Callable[..., str]:
    """Return the key of a partition with settings and inputs of the stand-in."""
    provide("2.14.0")
    package = import_module("torch_tensorrt")
    library = TorchTensorrt.of(package)

    def keyed(module: torch.fx.GraphModule | None = None, **changed: Any) -> str:
        settings = import_module("torch_tensorrt.dynamo._settings").CompilationSettings()
        bindings = changed.pop("bindings", (None, None))
        given = changed.pop("inputs", {})
        for name, value in changed.items():
            setattr(settings, name, value)
        chosen = module or partition()
        inputs = [package.Input(node.meta["val"], **given) for node in chosen.graph.nodes if node.op == "placeholder"]
        conversion = Conversion(chosen, inputs, settings, bindings)
        request = request_for(library, conversion, name="p", fingerprints=Fingerprints(), operator_versions={})
        return request.key.digest

    return keyed


def _graph_key(program: Program, inputs: tuple[Any, ...]) -> str:
    args = drawn(inputs if program.inputs is None else program.inputs)
    with quiet():
        exported = torch.export.export(made(program), args, dynamic_shapes=program.dynamic, strict=False)
    module = exported.run_decompositions().module(check_guards=False)
    return graph_records(describe(module, Fingerprints(), name="p", refittable=False))[1].hex


@pytest.mark.parametrize("pair", SAMPLE, ids=lambda pair: pair.name)
def test_programs_that_differ_have_two_keys(pair: Any) -> None:
    """Pairs of the key suite do not collide as partitions either."""
    one, other = (_graph_key(side, pair.inputs) for side in pair.sides)
    assert one != other


def test_programs_that_only_nest_their_calls_otherwise_are_one_partition() -> None:
    """The pairs left out above differ in nothing that an engine has."""
    left_out = [pair for pair in DIFFERENT if pair.name in _PARTS_CALLS_ONLY]
    assert len(left_out) == len(_PARTS_CALLS_ONLY)
    for pair in left_out:
        one, other = (_graph_key(side, pair.inputs) for side in pair.sides)
        assert one == other


def test_the_same_partition_has_one_key(keyed: Callable[..., str]) -> None:
    """In two compilations, and whatever the parameters are called."""

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.inner(x)
            return out

    assert keyed() == keyed() == keyed(partition(Renamed()))


def test_describing_a_partition_leaves_it_as_it_is(keyed: Callable[..., str]) -> None:
    """torch_tensorrt builds from the graph that was described: no node and no meta of it changes."""
    module = partition()
    before = module.code, [(node.name, dict(node.meta)) for node in module.graph.nodes]
    for immutable in (True, False):
        keyed(module, immutable_weights=immutable)
    assert (module.code, [(node.name, dict(node.meta)) for node in module.graph.nodes]) == before


def test_weights_are_in_frozen_keys_only(keyed: Callable[..., str]) -> None:
    """By content where they are in the engine; by dtype, shape and strides where they are put in."""
    assert keyed(small(0)) != keyed(small(1))
    assert keyed(small(0), immutable_weights=False) == keyed(small(1), immutable_weights=False)


def test_statistics_are_weights_and_masks_are_not(keyed: Callable[..., str]) -> None:
    """Of a model's buffers a refit sets a BatchNorm's; any other may be a constant, and enters by content."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("mask", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.norm(x) * self.mask
            return out

    keys = []
    for change in ("nothing", "running_mean", "mask"):
        model = Normed().eval()
        for name, buffer in model.named_buffers():
            buffer.data.add_(name.endswith(change))
        keys.append(keyed(partition(model), immutable_weights=False))
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("setting", ["sparse_weights", "refit_identical_engine_weights"])
def test_weights_that_the_builder_looks_at_are_in_the_key(keyed: Callable[..., str], setting: str) -> None:
    """Sparse tactics and identical refits depend on the values even where the engine can be refitted."""
    given = {"immutable_weights": False, setting: True}
    assert keyed(small(0), **given) != keyed(small(1), **given)


def test_engines_for_windows_are_frozen(keyed: Callable[..., str]) -> None:
    """Nothing here can put weights into them; and they are entries of their own."""
    given = {"immutable_weights": False, "enable_cross_compile_for_windows": True}
    assert keyed(small(0), **given) != keyed(small(1), **given)
    assert keyed(enable_cross_compile_for_windows=True) != keyed()


@pytest.mark.parametrize("change", ["index", "scalar"])
def test_what_converters_may_read_is_in_every_key(keyed: Callable[..., str], change: str) -> None:
    """Integers and single numbers are no weights: they can become part of the network."""
    module = small(0)
    (module.order.data if change == "index" else module.scale.data).add_(1)
    assert keyed(module, immutable_weights=False) != keyed(small(0), immutable_weights=False)


def test_names_that_refits_go_by_are_in_the_key(keyed: Callable[..., str]) -> None:
    """torch_tensorrt finds the weights of an engine by the names of nodes, so those part refittable entries."""
    renamed = small(0)
    for node in renamed.graph.nodes:
        if node.op == "call_function":
            node.name = f"other_{node.name}"
    assert keyed(renamed) == keyed()
    assert keyed(renamed, immutable_weights=False) != keyed(immutable_weights=False)


def test_names_that_callers_see_are_in_the_key(keyed: Callable[..., str]) -> None:
    """Names of the engine's inputs and outputs, the partition's own or given ones."""
    renamed = small(0)
    next(node for node in renamed.graph.nodes if node.op == "placeholder").name = "pixels"
    keys = {keyed(), keyed(renamed), keyed(bindings=(["a"], None)), keyed(bindings=(None, ["a"]))}
    assert len(keys) == 4


@pytest.mark.parametrize("name", sorted(KNOWN - set(LEFT_OUT)))
def test_each_setting_is_in_the_key(keyed: Callable[..., str], name: str) -> None:
    """Of 2.8 to 2.14, but for those that are left out with a reason."""
    assert keyed(**{name: "another value"}) != keyed()


@pytest.mark.parametrize("name", sorted(set(LEFT_OUT) - {"device"}))
def test_what_is_left_out_is_not(keyed: Callable[..., str], name: str) -> None:
    """Paths, switches of the other cache, and what decides where a graph is cut."""
    assert keyed(**{name: object()}) == keyed()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.float16, torch.float32),
        ({torch.float16, torch.float32}, {torch.float16}),
        (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor),
        ([torch.ops.aten.add], [torch.ops.aten.mul]),
        (torch.relu, torch.sin),
        ({"a": 1}, {"a": 2}),
        (0.5, 0.25),
        (nn.Linear, nn.Conv2d),
    ],
)
def test_values_of_settings_are_told_apart(keyed: Callable[..., str], one: Any, other: Any) -> None:
    """dtypes, operators, classes, sets of them."""
    assert keyed(autocast_excluded_ops=one) == keyed(autocast_excluded_ops=one) != keyed(autocast_excluded_ops=other)


@pytest.mark.parametrize("value", [object(), lambda: 1, {"a": object()}], ids=["object", "lambda", "inside"])
def test_a_setting_without_a_stable_form_has_no_key(keyed: Callable[..., str], value: object) -> None:
    """Its address would be another one tomorrow."""
    with pytest.raises(CanonicalizationError, match="workspace_size"):
        keyed(workspace_size=value)


def test_specifications_of_inputs_are_in_the_key(keyed: Callable[..., str]) -> None:
    """Shape ranges, formats and whatever later versions add; the example tensor is not."""
    keys = [
        keyed(),
        keyed(inputs={"shape": {"min_shape": (1, 4)}}),
        keyed(inputs={"profiles": [{"min_shape": (1, 4)}]}),
    ]
    assert len({*keys}) == 3
    assert keyed(inputs={"torch_tensor": torch.ones(2, 4)}) == keys[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "NVIDIA RTX 4090"},
        {"major": 9},
        {"minor": 6},
        {"multi_processor_count": 60},
        {"total_memory": 48 << 30},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_gpu_is_in_the_key(
    keyed: Callable[..., str], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """By product, capability, multiprocessors and memory class; not by number."""
    before = keyed()
    assert keyed(device=SimpleNamespace(device_type="GPU", gpu_id=3, dla_core=-1, allow_gpu_fallback=False)) == before
    assert keyed(device=SimpleNamespace(device_type="DLA", gpu_id=0, dla_core=1, allow_gpu_fallback=True)) != before
    plain = {"name": "NVIDIA L4", "major": 8, "minor": 9, "multi_processor_count": 58, "total_memory": 23_600_000_000}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**{**plain, **changed}))
    assert keyed() != before


def test_memory_is_told_in_classes() -> None:
    """What a driver keeps for itself does not part two GPUs of one product."""
    reported = (5.8, 14.6, 23.6, 79.1, 79.6, 139.8)
    assert [memory_gib(int(gib * (1 << 30))) for gib in reported] == [8, 16, 24, 80, 80, 140]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("torch_tensorrt", "__version__", "2.14.1"),
        ("tensorrt", "__version__", "10.17"),
        ("torch", "__version__", "2.99"),
        (
            "torch_tensorrt",
            "ENABLED_FEATURES",
            SimpleNamespace(refit=True, _asdict=lambda: {"refit": True, "new": True}),
        ),
        ("tensorrt", "get_plugin_registry", lambda: SimpleNamespace(all_creators=(), plugin_creator_list=())),
    ],
    ids=["torch_tensorrt", "tensorrt", "torch", "features", "plugins"],
)
def test_the_toolchain_is_in_the_key(
    keyed: Callable[..., str], monkeypatch: pytest.MonkeyPatch, module: str, name: str, value: Any
) -> None:
    """Versions, features and registered plugins."""
    before = keyed()
    monkeypatch.setattr(sys.modules[module], name, value)
    assert keyed() != before


def _converter(tmp_path: Path, text: str, name: str = "converters_of_mine") -> ModuleType:
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    module = ModuleType(name)
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102  # a file of this test's own
    return module


def _register(operator: Any, *converters: Any, takes: Callable[[Any], bool] = lambda node: True) -> Any:
    """Put converters of an operator into the stand-in's registry, of which the first takes only some calls."""
    module = import_module("torch_tensorrt.dynamo.conversion._ConverterRegistry")
    supports = [module.ConverterSupport(one) for one in converters]
    supports[0].capability_validator = lambda node, settings: takes(node)
    module.DYNAMO_CONVERTERS.registries[0][operator] = supports
    return module.DYNAMO_CONVERTERS


def _theirs(module: str, name: str) -> Any:
    return SimpleNamespace(__module__=f"torch_tensorrt.dynamo.conversion.{module}", __qualname__=name)


def test_a_converter_of_one_s_own_is_in_the_key_with_its_file(keyed: Callable[..., str], tmp_path: Path) -> None:
    """Its code may change where its name does not; torch_tensorrt's own are said by its version."""
    before = keyed()
    keys = [before]
    for text in ("def convert(ctx): return 1", "def convert(ctx): return 2"):
        _register(torch.ops.aten.relu.default, _converter(tmp_path, text).convert)
        keys.append(keyed())
    assert len({*keys}) == 3
    _register(torch.ops.aten.relu.default, _theirs("aten_ops_converters", "relu"))
    assert keyed() == before
    _register(torch.ops.aten.relu.default, eval("lambda ctx: 1"))  # noqa: S307  # without a file
    with pytest.raises(CanonicalizationError, match="no source file"):
        keyed()


FACTORY = """
import functools
import logging
import torch
log = logging.getLogger(__name__)
SCALE, CONFIG = 1, {"clip": (0.5, torch.float16)}
def helper(x, most=2):
    return x * SCALE
def make(slope):
    def convert(ctx, target, args, kwargs, name):
        log.debug("relu")
        return helper(slope), [CONFIG for _ in args], torch.relu
    return convert
def recursive(ctx):
    return recursive(ctx)
def wrapping(function):
    @functools.wraps(function)
    def wrapped(*args):
        return function(*args)
    return wrapped
"""


def test_a_converter_of_one_s_own_is_in_the_key_with_all_that_it_refers_to(
    keyed: Callable[..., str], tmp_path: Path
) -> None:
    """Functions that one function returned have one name and one file for every value in their closures."""
    relu = torch.ops.aten.relu.default

    def key(text: str, slope: object, *, wrapped: bool = False, **names: object) -> str:
        module = _converter(tmp_path, text)
        vars(module).update(names)
        convert = module.make(slope)
        _register(relu, module.wrapping(convert) if wrapped else convert)
        return keyed()

    first = key(FACTORY, 0.1)
    assert key(FACTORY, 0.1) == first
    others = [
        key(FACTORY, 0.2),
        key(FACTORY, 1),
        key(FACTORY, 1.0),
        key(FACTORY, 0.1, SCALE=2),
        key(FACTORY, 0.1, CONFIG={"clip": (0.5, torch.float32)}),
        key(FACTORY, 0.1, wrapped=True),
        key(FACTORY, 0.2, wrapped=True),
        key(FACTORY.replace("x * SCALE", "x + SCALE"), 0.1),
        key(FACTORY.replace("most=2", "most=3"), 0.1),
    ]
    assert len({first, *others}) == 1 + len(others)
    _register(relu, _converter(tmp_path, FACTORY).recursive)
    assert keyed()


_CONVERT = "def convert(ctx, target, args, kwargs, name): return ctx.scale(args[0], %s)\n"
_TRY = "def convert(ctx):\n  %s\n  try:\n    %s\n  except ValueError: pass\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_CONVERT % "convert.factor" + "convert.factor = 2.0", _CONVERT % "convert.factor" + "convert.factor = 3.0"),
        ("def convert(ctx, /, a): pass", "def convert(ctx, a, /): pass"),
        (_TRY % ("ctx.a()", "ctx.a(); ctx.a()"), _TRY % ("ctx.a(); ctx.a()", "ctx.a()")),
        ("def convert(ctx):\n  import json", "def convert(ctx):\n  import click"),
        (_CONVERT % "2.0", _CONVERT % "3.0"),
    ],
)
@pytest.mark.parametrize("name", ["converters_of_mine", "trace", "statistics"])
def test_a_converter_is_compared_whole(tmp_path: Path, name: str, before: str, after: str) -> None:
    """Attributes, kinds of arguments, what a ``try`` covers, and its code, whatever its module is called."""
    digests = [converter_digest(_converter(tmp_path, text, name).convert) for text in (before, before, after)]
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "def convert(ctx):\n  from helpers_of_mine import Z\n  return Z",
        "def convert(ctx):\n  from . import helpers_of_mine",
        "import enum\nclass Mode(enum.Enum):\n  FAST = 2\nMODE = Mode.FAST\n" + _CONVERT % "MODE.value",
        "import enum\nclass Mode(str, enum.Enum):\n  FAST = '2'\nMODE = Mode.FAST\n" + _CONVERT % "MODE",
        "from collections import namedtuple\nT = namedtuple('C', 'a b')(1.0, 2.0)\n" + _CONVERT % "T.a",
        "from collections import defaultdict\nT = defaultdict(lambda: 2.0)\n" + _CONVERT % "T['a']",
        "class L(list):\n  def get(self): return 2\nT = L()\n" + _CONVERT % "T.get()",
        "class D(dict): pass\nT = D()\nT.scale = 2\n" + _CONVERT % "T.scale",
        "import functools\nT = functools.partial(int)\nT.scale = 2\n" + _CONVERT % "T.scale",
    ],
)
def test_a_converter_with_what_has_no_description_has_no_digest(tmp_path: Path, text: str) -> None:
    """A class or a module of no installed distribution, in a value or an import; a container with more than items."""
    with pytest.raises(CanonicalizationError, match="it has no digest"):
        converter_digest(_converter(tmp_path, text).convert)


def test_values_of_the_standard_library_have_a_digest(tmp_path: Path) -> None:
    """Also of modules that Python has in itself, and of a member of one of its enumerations."""
    text = "import os, sys, math, signal, json\nS = signal.SIGINT\nJ = os.path.join\nD = json.dumps\nL = math.log\n"
    convert = "def convert(ctx):\n  import itertools, os.path\n  return sys, os, math, S, J, D, L"
    assert converter_digest(_converter(tmp_path, text + convert).convert)


def test_a_converter_that_refers_to_what_has_no_description_is_not_cached(
    keyed: Callable[..., str], tmp_path: Path
) -> None:
    """An object, a class or a module of no installed distribution can change under its name."""
    module = _converter(tmp_path, FACTORY)
    for value in (object(), Small, ModuleType("helpers_of_mine"), torch.ones(2), Small().forward):
        _register(torch.ops.aten.relu.default, module.make(value))
        with pytest.raises(CanonicalizationError, match="it has no digest"):
            keyed()


def test_a_function_of_torch_tensorrt_is_not_cached(keyed: Callable[..., str]) -> None:
    """The converters of its collectives write the ranks of this process into the engine."""

    def gather(inp: torch.Tensor, group_size: int, group_name: str) -> torch.Tensor:
        del group_size, group_name
        return inp

    gather.__module__ = "torch_tensorrt.dynamo.lowering.passes.fuse_distributed_ops"
    module = partition()
    output = module.graph.output_node()
    (last, *_) = output.all_input_nodes
    with module.graph.inserting_before(output):
        call = module.graph.call_function(gather, (last, 2, "3"))
    call.meta["val"] = last.meta["val"]
    output.replace_input_with(last, call)
    _register(gather, _theirs("custom_ops_converters", "fused_nccl_gather"))
    with pytest.raises(CanonicalizationError, match="neither an ATen operator nor arithmetic"):
        keyed(module)


def test_every_converter_of_an_operator_is_in_the_document(tmp_path: Path) -> None:
    """The registry chooses one for each node."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    nodes = [graph.call_function(torch.ops.aten.relu.default, (x,)) for _ in range(3)]
    for name in "ab":
        (tmp_path / name).mkdir()
    first = _converter(tmp_path / "a", "def convert(ctx): return 1").convert
    second = _converter(tmp_path / "b", "def convert(ctx): return 3").convert
    one = converters_document({nodes[0]: first})
    both = converters_document({nodes[0]: first, nodes[1]: second, nodes[2]: first})
    assert both["aten.relu.default"] == sorted([*one.values(), *converters_document({nodes[0]: second}).values()])
    changed = _converter(tmp_path / "a", "def convert(ctx): return 2").convert
    assert converters_document({nodes[0]: changed, nodes[1]: second}) != both


def test_converters_are_chosen_where_it_matters(keyed: Callable[..., str], tmp_path: Path) -> None:
    """The registry is asked for calls that may get another's converter, and for all where it has another form."""
    before = keyed()
    relu, theirs = torch.ops.aten.relu.default, _theirs("aten_ops_converters", "relu")
    mine = _converter(tmp_path, "def convert(ctx): return 1").convert
    registry = _register(relu, theirs, theirs)
    assert (keyed(), registry.asked) == (before, [])
    _register(relu, mine, theirs, takes=lambda node: False)
    assert (keyed(), registry.asked) == (before, [relu])
    _register(relu, mine, theirs)
    assert keyed() != before
    _register(relu, theirs)
    registry.registries = (*registry.registries, {})
    registry.asked.clear()
    assert keyed() == before
    assert len(registry.asked) > 1


def test_a_custom_operator_is_said_by_its_converter(keyed: Callable[..., str], tmp_path: Path) -> None:
    """One whose converter is known has a key; one that stands for a plugin has none without a declared version."""
    with torch.library._scoped_library("trtcache_partitions", "FRAGMENT") as library:
        library.define("halve(Tensor x) -> Tensor")
        library.impl("halve", torch.empty_like, "Meta")
        halve = torch.ops.trtcache_partitions.halve
        module = partition(Small(function=halve))
        _register(halve.default, _converter(tmp_path, "def convert(ctx): return 1").convert)
        assert keyed(module)
        _register(halve.default, _theirs("aten_ops_converters", "halve"))
        assert keyed(module)
        _register(halve.default, _theirs("plugins._generate", "f"))
        with pytest.raises(CanonicalizationError, match="operator_versions"):
            keyed(module)


def test_dynamic_sizes_are_in_the_key() -> None:
    """A symbolic batch, its range, and a number among the inputs."""
    dims = [None, {0: torch.export.Dim("b", min=2, max=8)}, {0: torch.export.Dim("b", min=2, max=16)}]
    keys = set()
    for dim in dims:
        module = partition(Small(), torch.zeros(3, 4), dynamic=None if dim is None else (dim,))
        keys.add(graph_records(describe(module, Fingerprints(), name="p", refittable=False))[1].hex)
    assert len(keys) == 3


def test_numbers_can_be_inputs() -> None:
    """Since 2.14 a partition may take sizes as inputs."""
    module = partition(Small(), torch.zeros(3, 4), dynamic=({0: torch.export.Dim("b", min=2, max=8)},))
    graph = module.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        size = graph.placeholder("size")
    x = next(node for node in graph.nodes if node.op == "placeholder" and node is not size)
    size.meta["val"] = x.meta["val"].shape[0]
    graph.output_node().args = ((*graph.output_node().args[0], size),)
    records = graph_records(describe(module, Fingerprints(), name="p", refittable=False))[0]
    assert any(record[0] == "input" and record[2][0] == "size" for record in records if isinstance(record, list))


@pytest.mark.parametrize("fault", ["no value", "no tensor", "call of a module"])
def test_what_is_no_partition_has_no_key(fault: str) -> None:
    """A graph that torch_tensorrt would not make either is refused, not guessed at."""
    module = small(0)
    nodes = {node.op: node for node in module.graph.nodes}
    match fault:
        case "no value":
            del nodes["placeholder"].meta["val"]
        case "no tensor":
            nodes["get_attr"].target = "lin"
        case _:
            with module.graph.inserting_before(nodes["output"]):
                call = module.graph.call_module("lin", (nodes["placeholder"],))
            nodes["output"].args = ((call,),)
    with pytest.raises(CanonicalizationError):
        graph_records(describe(module, Fingerprints(), name="p", refittable=False))


def test_the_stored_graph_can_be_read_without_torch(keyed: Callable[..., str]) -> None:
    """Entries keep the graph as every other kind does, for ``trtcache why``."""
    from trtcache.keys.graph_digest import graph_document

    program = describe(small(0), Fingerprints(), name="p", refittable=True)
    stored = StoredGraph.of(graph_document(program, graph_records(program)[0]))
    assert {node.operator for node in stored.nodes} >= {"input", "weight", "constant"}
    assert "aten.addmm" in program.text

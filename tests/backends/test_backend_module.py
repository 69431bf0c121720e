"""The public module for authors of backends: its names, and the forms of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.comparing import difference
from trtcache import backend
from trtcache.errors import BuildError
from trtcache.weights.slots import fit

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from trtcache.lowering import LoweredProgram

X = torch.randn(3, 4)


class Network(torch.nn.Module):
    """A linear layer, a constant, and sizes that may vary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.offsets = torch.tensor([1.0, -2.0])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layer's output and its exponential."""
        hidden = self.layer(x) * self.offsets
        return hidden, hidden.exp()


class Counter(torch.nn.Module):
    """A module that changes a buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count, and add the count."""
        self.calls += 1
        return x + self.calls


@pytest.fixture
def model() -> Network:
    """Return a network in eval mode."""
    return Network().eval()


@pytest.fixture
def program(model: Network) -> LoweredProgram:
    """Return the network's lowered program, for any number of rows."""
    return trtcache.lower(model, (X,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=64)},))


def weights_of(program: LoweredProgram) -> dict[str, torch.Tensor]:
    """Return the program's engine weights by name."""
    state = program.state
    return dict(fit(program.interface.weights, state, known=frozenset(state), device=program.device))


def test_every_name_exists_and_is_the_object_that_the_core_uses() -> None:
    """The names are those of the modules that define them, and an unknown one is an error."""
    from trtcache.backends.protocol import Backend

    assert backend.Backend is Backend
    assert set(dir(backend)) == set(backend.__all__)
    assert all(getattr(backend, name).__module__.startswith("trtcache.") for name in backend.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Plugin'"):
        _ = backend.Plugin  # type: ignore[attr-defined]


def test_importing_it_imports_nothing(run_fresh_python: RunPython) -> None:
    """Neither torch nor a backend is imported with the module, and trtcache does not import it."""
    code = "import sys, trtcache; assert 'trtcache.backend' not in sys.modules; import trtcache.backend"
    run_fresh_python(f"{code}; assert not {{'torch', 'trtcache.backends', 'sqlalchemy'}} & set(sys.modules)")


def test_a_program_as_a_graph_module(program: LoweredProgram, model: Network) -> None:
    """It takes inputs and then weights, for any allowed size."""
    module = backend.to_graph_module(program, "mine")
    weights = weights_of(program)
    names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    assert names == ["in0", *weights]
    assert dict(module.named_buffers()).keys() == program.constants.keys() == {"c0"}
    for rows in (2, 5):
        x = torch.randn(rows, 4)
        assert difference(list(model(x)), list(module(x, *weights.values()))) is None


def test_a_program_as_an_exported_program(program: LoweredProgram, model: Network) -> None:
    """Torch runs it, with weights as arguments."""
    exported = backend.to_exported_program(program, "mine")
    found = exported.module()(X, *weights_of(program).values())
    assert difference(list(model(X)), list(found)) is None


def test_a_program_as_a_module_with_weights(program: LoweredProgram, model: Network) -> None:
    """Weights are buffers without values, which take those of the model."""
    module, examples = backend.to_module_with_weights(program)
    module.load_state_dict(weights_of(program), strict=False)
    assert [tuple(one.shape)[1:] for one in examples] == [(4,)]
    assert difference(list(model(X)), list(module(X))) is None


def test_a_program_as_onnx(program: LoweredProgram, model: Network) -> None:
    """ONNX Runtime computes the same, with weights as inputs, and with those given as initializers without data."""
    runtime = pytest.importorskip("onnxruntime")
    weights = weights_of(program)
    arrays = {name: tensor.detach().numpy() for name, tensor in weights.items()}
    made = backend.to_onnx(program, "mine")
    assert made.inputs == ("in0", *weights)
    session = runtime.InferenceSession(made.content, providers=["CPUExecutionProvider"])
    found = session.run(list(made.outputs), {"in0": X.numpy(), **arrays})
    assert difference(list(model(X)), [torch.from_numpy(one) for one in found]) is None
    assert backend.to_onnx(program, "mine", weights=weights).inputs == ("in0",)


def test_a_state_between_calls_has_no_such_form() -> None:
    """The error names the backend and the weight."""
    program = trtcache.lower(Counter(), (X,))
    for convert in (backend.to_graph_module, backend.to_exported_program, backend.to_onnx):
        with pytest.raises(BuildError, match=r"building mine failed: calls change calls, and an engine keeps no state"):
            convert(program, "mine")


def test_why_onnx_cannot_have_a_node(program: LoweredProgram) -> None:
    """Operators that torch exports have no reason; one that it does not has."""
    assert [backend.why_no_onnx(node) for node in program.order if backend.why_no_onnx(node)] == []
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten._cdist_forward.default)
    node.meta["val"] = X
    assert backend.why_no_onnx(node) == "torch has no ONNX for aten._cdist_forward.default"


def test_the_dtypes_of_a_node_are_those_that_it_computes_with() -> None:
    """Of several results those count that are read; an argument's dtype counts as much as a result's."""

    class Pooled(torch.nn.Module):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.nn.functional.max_pool2d(x, 2), torch.sort(x)[1], x[places].exp()

    program = trtcache.lower(Pooled(), (torch.randn(3, 4, 4), torch.tensor([0, 2])))
    found: dict[str, set[torch.dtype]] = {}
    for node in program.order:
        if node.op == "call_function":
            found.setdefault(str(node.target), set()).update(backend.node_dtypes(node))
    floats, both = {torch.float32}, {torch.float32, torch.int64}
    assert found["aten.max_pool2d_with_indices.default"] == floats
    assert found["aten.sort.default"] == both
    assert found["aten.index.Tensor"] == both
    assert found["aten.exp.default"] == floats

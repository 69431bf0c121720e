"""TorchScript modules and files: what is converted, and what is said of the rest."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import trtcache
from tests.comparing import difference
from tests.documents import python_blocks
from tests.keys.architectures import voice_encoder
from tests.models import retrained
from trtcache.errors import ExportError, InputError, RefitError, SettingsError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")  # torch's own


class Last(nn.Module):
    """The last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.out(states[:, -1])


class Compares(nn.Module):
    """What it does depends on a number in a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum().item() > 1:
            return x * 0
        return x


class Chooses(nn.Module):
    """What it does depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x + 1
        return torch.cat([x, x])


class Times(nn.Module):
    """Multiplies by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.by = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Shares(nn.Module):
    """Sets a number under one of the names that a module has, and reads it under the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self.other = torch.jit.script(Times())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.one.by = 3
        y = self.other(x)
        self.one.by = 1
        return y


class Remembers(nn.Module):
    """Keeps what it was given last, if there was anything."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            self.last = x
        return x + self.last


class Counts(nn.Module):
    """Loops as often as a value says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):
            x = torch.cat([x, x])
        return x


class Reads(nn.Module):
    """Makes a list of a tensor's values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: list[float] = x.tolist()
        return x + values[0]


class Checks(nn.Module):
    """Takes rows of three only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 3:
            raise ValueError("three")
        return x


class Keeps(nn.Module):
    """Keeps what it was given, of which there is nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        return x + 1


class Grows(nn.Module):
    """Counts its calls in a number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


class Appends(nn.Module):
    """Keeps all that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.jit.Attribute([], list[torch.Tensor])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return x + len(self.seen)


class Puts(nn.Module):
    """Keeps what it was given last, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.jit.Attribute({"last": torch.zeros(2)}, dict[str, torch.Tensor])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.seen["last"]
        self.seen["last"] = x
        return x + before


@torch.jit.script
class Total:
    """A sum, in an object of TorchScript's own."""

    def __init__(self) -> None:
        self.value = torch.zeros(2)

    def add(self, x: torch.Tensor) -> torch.Tensor:
        """Add to the sum and return it."""
        self.value = self.value + x
        return self.value


class UsesTotal(nn.Module):
    """Keeps a sum in such an object."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Total()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.total.add(x)


class Lists(nn.Module):
    """Makes a tensor of a list that grows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes: list[int] = []
        for size in x.shape:
            sizes.append(size)  # noqa: PERF402  # what TorchScript knows
        return x + torch.tensor(sizes)


class Steps(nn.Module):
    """Loops, branches and makes tensors by a number and by sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.ones(4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor, steps: int = 1) -> torch.Tensor:
        if x.dim() != 2:
            raise ValueError(f"{x} has {x.dim()} dimensions")
        for _ in range(steps):
            x = x * torch.tensor(2.5) + torch.tensor([1.0, float(x.shape[0]), 3.0, 4.0])
        for number, layer in enumerate(self.layers):
            if number < steps:
                x = layer(x)
        print(x)  # noqa: T201  # what a script may do
        factors = torch.tensor([1, 2, 3, 4])
        factors[0] = 5
        x = x * factors
        return x.data + self.offset + torch.tensor(steps) + torch.tensor([steps > 2, True, False, True])


class Swaps(nn.Module):
    """Keeps its last two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Kept()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.part.old
        self.part.old = self.part.new
        self.part.new = x
        return x + 10 * self.part.old + 100 * before


class Delays(nn.Module):
    """Returns its last input, and a part of the two before."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(2)
        self.register_buffer("ring", torch.zeros(3, 2))
        self.table = torch.zeros(2, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], torch.Tensor]:
        last, oldest, table = self.last, self.ring[:1], self.table
        self.last = x
        self.ring = torch.cat([self.ring[1:], x.unsqueeze(0)])
        self.table = (self.table + x).t()
        return last, oldest, [table, last + 1], self.last


class Turns(nn.Module):
    """Keeps a view of what it has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(4.0).reshape(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table.t()
        return self.table * x


class Says(nn.Module):
    """Returns a tensor as text."""

    def forward(self, x: torch.Tensor) -> str:
        return f"{x}"


class Complains(nn.Module):
    """Writes a tensor into messages."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dim() == 2, f"not a matrix: {x}"
        print(f"a matrix: {x}")  # noqa: T201  # TorchScript's
        return x + 1


class Kept(nn.Module):
    """Two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.old = torch.zeros(2)
        self.new = torch.zeros(2)


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """A model of each kind, with its input."""
    convolutions = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    return {
        "mlp": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(2, 4)),
        "cnn": (convolutions, torch.randn(2, 3, 8, 8)),
        "lstm": (Last(), torch.randn(2, 5, 4)),
    }


def scripted(model: nn.Module, x: torch.Tensor, how: str) -> Any:
    """Return a model as TorchScript."""
    return torch.jit.script(model) if how == "script" else torch.jit.trace(model, x)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_a_torchscript_module_has_equal_results_and_is_refitted(
    interpreter: str, engines: Path, name: str, how: str
) -> None:
    """Scripted and traced; a retrained module of the same architecture hits, and can be set by a refit."""
    model, x = models()[name]
    first = scripted(model.eval(), x, how)
    module = trtcache.compile(first, (x,), backend=interpreter, cache=engines)
    assert torch.allclose(module(x), model(x), atol=1e-6)
    other = scripted(retrained(model), x, how)
    again = trtcache.compile(other, (x,), backend=interpreter, cache=engines)
    assert again.report.partitions[0].outcome == "hit"
    module.refit(other.state_dict())
    assert torch.equal(module(x), again(x))
    assert torch.allclose(module(x), other(x), atol=1e-6)


def test_a_torchscript_file_is_recognized_by_its_members(interpreter: str, engines: Path, tmp_path: Path) -> None:
    """The suffix does not matter; key and lower accept it too."""
    model, x = models()["mlp"]
    script = scripted(model.eval(), x, "script")
    script.save(str(tmp_path / "net.jit"))
    module = trtcache.compile(tmp_path / "net.jit", (x,), backend=interpreter, cache=engines)
    assert torch.allclose(module(x), model(x), atol=1e-6)
    assert module.report.name == "net"
    assert module.report.partitions[0].key == trtcache.key(tmp_path / "net.jit", (x,), backend=interpreter)
    assert "relu" in trtcache.lower(script, (x,), backend=interpreter).text
    torch.save({"x": x}, tmp_path / "weights.pt")
    with pytest.raises(ExportError, match=r"torch.save wrote it"):
        trtcache.compile(tmp_path / "weights.pt", (x,), backend=interpreter, cache=engines)


def test_a_traced_voice_encoder(interpreter: str, engines: Path) -> None:
    """The model of resemblyzer, with its own weights."""
    model, args = voice_encoder()
    traced = torch.jit.trace(model.eval(), args)  # type: ignore[no-untyped-call]
    module = trtcache.compile(traced, args, backend=interpreter, cache=engines)
    assert torch.allclose(module(*args), model(*args), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Remembers(), r'Remembers cannot be exported: at "if bool\(x.sum\(\) > 0\):": prim::If: it chooses by values'),
        (Chooses(), r'Chooses cannot be exported: at "if bool.*": prim::If: it chooses by values of tensors; compile'),
        (Compares(), r'Compares cannot be exported: at "if x.sum.*": prim::If: it chooses by values of tensors'),
        (
            Counts(),
            r'Counts cannot be exported: at "for _ in range.*": prim::Loop: it loops by values of tensors; write',
        ),
        (Reads(), r"Reads cannot be exported: prim::tolist needs values of tensors"),
        (
            Checks(),
            r'Checks cannot be exported: at "raise ValueError.*": it raises ValueError: three for these example',
        ),
        (
            Keeps(),
            r"prim::SetAttr changes the attribute last from a tensor of shape \(0,\), .* \(2,\), .*: if only a",
        ),
        (Grows(), r"prim::SetAttr changes the attribute calls from 0 to 1: .*make it an argument and a result"),
        (Appends(), r"the attribute seen is a list that a call changes: make it an argument and a result"),
        (Puts(), r"the attribute seen is a dict that a call changes"),
        (UsesTotal(), r"prim::SetAttr changes value of an object that is not in the module"),
        (Lists(), r"aten::tensor creates a tensor from a list built in the call"),
    ],
    ids=[
        "attribute",
        "branch",
        "number_of_a_tensor",
        "loop",
        "list_of_values",
        "check",
        "other_shape",
        "number",
        "appended",
        "put",
        "object",
        "list",
    ],
)
def test_unsupported_operations_are_refused_with_advice(interpreter: str, model: nn.Module, message: str) -> None:
    """The error has the source line and the operator, and the module is unchanged."""
    script = torch.jit.script(model)
    before = str(script.graph)
    with pytest.raises(ExportError, match=message):
        trtcache.compile(script, (torch.ones(2),), backend=interpreter)
    assert str(script.graph) == before
    assert not [one for one in getattr(script, "seen", ()) if isinstance(one, torch.Tensor)]


def test_branches_and_loops_are_decided_by_the_examples(interpreter: str, engines: Path) -> None:
    """Each number has a program of its own, and tensors created from numbers equal TorchScript's."""
    script = torch.jit.script(Steps())
    x = torch.randn(3, 4)
    for steps in (0, 3):
        module = trtcache.compile(script, (x, steps), backend=interpreter, cache=engines)
        assert torch.equal(module(x, steps), script(x, steps))
    with pytest.raises(InputError, match="expected 3, got 2"):
        module(x, 2)
    named = trtcache.compile(script, (x,), {"steps": 3}, backend=interpreter, cache=engines)
    assert torch.equal(named(x, steps=3), script(x, 3))
    assert torch.equal(trtcache.compile(script, (x,), backend=interpreter, cache=engines)(x), script(x))


def test_sizes_that_a_trace_computed_with_tensors_are_numbers(interpreter: str, engines: Path) -> None:
    """Such as the sizes of a GRU's initial state and of attention heads."""
    x = torch.randn(3, 2, 8)
    for model, inputs in ((nn.GRU(8, 4, 2, bidirectional=True), (x,)), (nn.MultiheadAttention(8, 2).eval(), (x, x, x))):
        traced = torch.jit.trace(model, inputs)  # type: ignore[no-untyped-call]
        module = trtcache.compile(traced, inputs, backend=interpreter, cache=engines)
        other = [torch.randn(3, 2, 8) for _ in inputs]
        found, expected = module(*other), traced(*other)
        assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(found, expected, strict=True))


def test_state_belongs_to_the_compiled_module(interpreter: str, engines: Path) -> None:
    """It starts with the module's state, keeps it between calls, does not change the module, and is set by a refit."""
    script = torch.jit.script(Swaps())
    twin = torch.jit.script(Swaps())
    inputs = [torch.randn(2) for _ in range(3)]
    module = trtcache.compile(script, (inputs[0],), backend=interpreter, cache=engines)
    assert [module(x).tolist() for x in inputs] == [twin(x).tolist() for x in inputs]
    assert torch.equal(script.part.new, torch.zeros(2))
    assert module.refit(script, verify=True, args=(inputs[0],)).off_by == 0
    module.refit({"part.new": torch.ones(2), "part.old": torch.zeros(2)})
    assert torch.equal(module(inputs[0]), inputs[0] + 10)


@pytest.mark.parametrize("model", [Delays, Turns])
def test_a_former_value_of_an_attribute_stays_what_it_was(
    interpreter: str, engines: Path, model: type[nn.Module]
) -> None:
    """A script binds an attribute to another tensor: results that are the old one, or a view of it, do not change."""
    script = torch.jit.script(model())
    inputs = [torch.randn(2) for _ in range(5)]
    module = trtcache.compile(torch.jit.script(model()), (inputs[0],), backend=interpreter, cache=engines)
    for x in inputs:
        assert difference(script(x), module(x)) is None


def test_a_module_of_two_names_has_one_state(interpreter: str, engines: Path) -> None:
    """What a call sets under one of them, it reads under the other."""
    script, x = torch.jit.script(Shares()), torch.randn(2)
    module = trtcache.compile(script, (x,), backend=interpreter, cache=engines)
    assert torch.equal(module(x), script(x))
    assert torch.equal(module(x), x * 3)


def silero_vad() -> Any:
    """silero-vad's model with its own weights."""
    path = importlib.metadata.distribution("silero-vad").locate_file("silero_vad/data/silero_vad.jit")
    return torch.jit.load(str(path)).eval()  # type: ignore[no-untyped-call]


@torch.no_grad()
def test_the_network_of_silero_vad(interpreter: str, engines: Path) -> None:
    """Its 16 kHz part takes and returns the state of an LSTM; other weights are set by a refit."""
    first, other = silero_vad()._model, silero_vad()._model
    for weight in other.state_dict().values():
        weight.add_(torch.randn_like(weight) * 0.01)
    state = torch.zeros(2, 1, 128)
    module = trtcache.compile(first, (torch.randn(1, 576), state), backend=interpreter, cache=engines)
    for model in (first, other):
        module.refit(model.state_dict())
        expected = found = state
        for _ in range(4):
            x = torch.randn(1, 576) / 10
            (answer, found), (wanted, expected) = module(x, found), model(x, expected)
            assert torch.allclose(answer, wanted, atol=1e-5)
            assert torch.allclose(found, expected, atol=1e-5)


@torch.no_grad()
def test_silero_vad_is_compiled_whole_after_a_first_call(interpreter: str, engines: Path) -> None:
    """It chooses a network by the sampling rate and keeps its state; a fresh stream starts with zeros."""
    model, twin, fresh = silero_vad(), silero_vad(), silero_vad()
    chunks = [torch.randn(1, 512) / 10 for _ in range(4)]
    with pytest.raises(
        ExportError, match=r"SetAttr changes the attribute _state .*: if only a first call does that, call"
    ):
        trtcache.compile(model, (chunks[0], 16000), backend=interpreter, cache=engines)
    model(chunks[0], 16000), twin(chunks[0], 16000)
    module = trtcache.compile(model, (chunks[0], 16000), backend=interpreter, cache=engines)
    assert all(torch.allclose(module(x, 16000), twin(x, 16000), atol=1e-5) for x in chunks)
    module.refit({**model.state_dict(), "_state": torch.zeros(2, 1, 128), "_context": torch.zeros(1, 64)})
    assert all(torch.allclose(module(x, 16000), fresh(x, 16000), atol=1e-5) for x in chunks)


@torch.no_grad()
def test_the_python_of_the_document_runs(interpreter: str, engines: Path) -> None:
    """With another backend, which builds nothing."""
    text = (Path(__file__).parents[2] / "docs" / "torchscript.md").read_text(encoding="utf-8")
    (block,) = python_blocks(text)
    doors = SimpleNamespace(compile=partial(trtcache.compile, backend=interpreter, cache=engines))
    names: dict[str, Any] = {"torch": torch, "trtcache": doors}
    names["silero_vad"] = silero_vad
    exec(block.replace('torch.jit.load("silero_vad.jit").eval()', "silero_vad()"), names)  # noqa: S102  # the document's
    assert torch.allclose(names["speech"], silero_vad()(names["chunk"], 16000), atol=1e-5)


def test_a_torchscript_module_needs_example_inputs_and_keeps_their_sizes(interpreter: str) -> None:
    """Missing examples and dynamic shapes are errors."""
    script = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(SettingsError, match="no example inputs; give some"):
        trtcache.compile(script, backend=interpreter)
    with pytest.raises(SettingsError, match="args: Linear: too many positional arguments"):
        trtcache.compile(script, (torch.ones(2), 2), backend=interpreter)
    with pytest.raises(
        ExportError, match=r'Linear cannot be exported: at "return F.linear.*it does not take these example inputs'
    ):
        trtcache.compile(script, (torch.ones(3, 3),), backend=interpreter)
    with pytest.raises(ExportError, match="GRU cannot be exported: it has no method forward"):
        trtcache.compile(torch.jit.script(nn.GRU(2, 2)), (torch.ones(2, 2),), backend=interpreter)
    with pytest.raises(SettingsError, match="compiled for its examples' sizes"):
        trtcache.key(script, (torch.ones(2, 2),), dynamic_shapes=({0: torch.export.Dim("b")},), backend=interpreter)


class Converts(nn.Module):
    """Takes numbers in containers."""

    def forward(
        self,
        x: torch.Tensor,
        a: float,
        b: list[float],
        c: dict[str, float],
        d: tuple[float, int],
        e: float | None,
        f: complex,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float]:
        least = 1.0 if e is None else e
        return x * a, x * b[0], x * c["a"], x * d[0], x * least, x * f, a // 4


def test_arguments_are_converted_to_the_types_of_the_signature(interpreter: str, engines: Path) -> None:
    """An int for a float makes results floats, also in containers, as in a call of the TorchScript module."""
    scripted, x = torch.jit.script(Converts()), torch.arange(3)
    for args in ((x, 2, [2], {"a": 2}, (2, 2), 2, 2), (x, True, (2.5,), {"a": True}, (0.5, True), None, 1.5)):
        expected, found = scripted(*args), trtcache.compile(scripted, args, backend=interpreter, cache=engines)(*args)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


class Noisy(nn.Module):
    """Behaves in another way in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(-1)
        y.add_(1)
        out: torch.Tensor = self.drop(self.norm(x))
        return out


@pytest.mark.parametrize("policy", ["eager", "compile"])
def test_a_script_that_is_trained_later_answers_in_the_mode_of_then(
    interpreter: str, engines: Path, policy: str
) -> None:
    """Calls that guards reject, before and after refits, run in the mode in which the module was compiled."""
    scripted: Any = torch.jit.script(Noisy().eval())
    module = trtcache.compile(scripted, (torch.ones(4, 3),), on_guard=policy, backend=interpreter, cache=engines)

    def other() -> torch.Tensor:
        return torch.arange(12.0).view(3, 4).t()

    expected = scripted(other())
    scripted.train()
    for refit in (lambda: None, lambda: module.refit(scripted.state_dict()), lambda: module.refit(scripted)):
        refit()
        assert torch.equal(module(other()), expected)
    assert int(scripted.norm.num_batches_tracked) == 0
    assert scripted.drop.training


class Holds(nn.Module):
    """Has a tensor that is not registered."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.linear, self.held = nn.Linear(3, 3), torch.full((3,), by)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x) + self.held
        return out


class HoldsList(nn.Module):
    """Has a list of tensors that are not registered."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.linear, self.held = nn.Linear(3, 3), [torch.full((3,), by)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(x) + self.held[0]
        return out


@pytest.mark.parametrize("kind", [Holds, HoldsList])
@pytest.mark.parametrize("traced", [False, True])
def test_a_refit_compares_what_a_script_does_not_register(
    interpreter: str, engines: Path, traced: bool, kind: Any
) -> None:
    """Lists, attributes and the constants of a trace: with other values the refit is refused, as of any module."""
    x = torch.ones(1, 3)

    def make(by: float) -> Any:
        model = kind(by).eval()
        return torch.jit.trace(model, (x,)) if traced else torch.jit.script(model)

    module = trtcache.compile(make(1.0), (x,), backend=interpreter, cache=engines)
    same = make(1.0)
    module.refit(same)
    assert torch.equal(module(x), same(x))
    with pytest.raises(RefitError, match="compile the new model"):
        module.refit(make(2.0))


def test_what_forward_alone_does_not_do_is_refused(interpreter: str) -> None:
    """Hooks of the module itself, and its own autocast; an error's message may have tensors in it, a result may not."""
    x = torch.ones(2, 3)

    def scale(module: nn.Module, args: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return out * 10

    traced = torch.jit.trace(nn.Linear(3, 3), (x,))
    traced.register_forward_hook(scale)
    with pytest.raises(ExportError, match="forward hooks"):
        trtcache.compile(traced, (x,), backend=interpreter)
    plain = torch.jit.script(nn.Linear(3, 3))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ExportError, match="an autocast of its own"):
        trtcache.compile(plain, (x,), backend=interpreter)
    with pytest.raises(ExportError, match="formats values of tensors"):
        trtcache.compile(torch.jit.script(Says()), (x,), backend=interpreter)
    assert torch.equal(trtcache.compile(torch.jit.script(Complains()), (x,), backend=interpreter)(x), x + 1)

"""Programs of every form are written to a file, loaded, and opened by torch."""

from __future__ import annotations

import copy
import gc
from pathlib import Path

import pytest
import torch

import trtcache
from tests.bundle.programs import forms, same
from trtcache.bundle import load_module
from trtcache.bundle.load_program import _Renewal
from trtcache.errors import IncompatibleEngineError, ProgramFileError, RefitError
from trtcache.lowering.interface import Content

FORMS = sorted(forms())
MUTATIONS = {
    "buffer changed": {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"},
    "buffer changed in parts": {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"},
    "no state_dict has it": {"kept", "last", "count"},
    "no state_dict has it, in parts": {"kept", "last", "count"},
    "input changed": {"x", "more_k"},
    "input changed in parts": {"x", "more_k"},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_loaded_program_answers_as_the_module_that_was_written(
    name: str, interpreter: str, tmp_path: Path, engines: Path
) -> None:
    """Answers, changed inputs and changed state are the same bit for bit, call after call."""
    form = forms()[name]
    shapes = {"dynamic_shapes": form.shapes} if form.shapes else {}
    model = form.model()  # kept until the program is written: recipes need its weights
    module = trtcache.compile(
        model, form.args, dict(form.kwargs), backend=interpreter, settings=form.settings, cache=engines, **shapes
    )
    assert len(module.report.partitions) == form.engines
    path = tmp_path / "program.pt2"
    trtcache.export(module, path)
    loaded = trtcache.load(path, trust="local-file")
    assert [one.weights for one in loaded.report.partitions] == [one.weights for one in module.report.partitions]
    for args in form.others or (form.args, form.args):
        mine, theirs = copy.deepcopy((args, dict(form.kwargs))), copy.deepcopy((args, dict(form.kwargs)))
        expected, found = module(*mine[0], **mine[1]), loaded(*theirs[0], **theirs[1])
        assert same((expected, mine), (found, theirs))
    _check_torchs(path, name, form.engines)


def _check_torchs(path: Path, name: str, engines: int) -> None:
    """Open a file by torch, and see that it has the engines and mutations."""
    program = torch.export.load(path)
    operator = torch.ops.trtcache.execute_engine.default
    assert sum(node.target is operator for node in program.graph.nodes) == engines
    changed = {spec.target for spec in program.graph_signature.output_specs if "MUTATION" in str(spec.kind)}
    assert changed == MUTATIONS.get(name, set())


def test_names_and_values_of_weights_are_the_models(interpreter: str, tmp_path: Path) -> None:
    """What torch opens has the model's own weights under their names, tied ones once in memory."""
    model = forms()["shared weight"].model()
    module = trtcache.compile(model, (torch.tensor([1]),), backend=interpreter)
    trtcache.export(module, tmp_path / "tied.pt2")
    program = torch.export.load(tmp_path / "tied.pt2")
    state = dict(program.state_dict)
    assert state.keys() == {"embed.weight", "out.weight"}
    assert torch.equal(state["out.weight"], model.embed.weight)  # type: ignore[union-attr]
    assert state["out.weight"].untyped_storage().data_ptr() == state["embed.weight"].untyped_storage().data_ptr()
    assert isinstance(state["out.weight"], torch.nn.Parameter)


def test_a_file_says_nothing_of_the_machine_that_wrote_it(interpreter: str, tmp_path: Path) -> None:
    """No folder of this machine and no name of it is in the file."""
    form = forms()["recipes in torch"]
    module = trtcache.compile(form.model(), form.args, backend=interpreter, settings=form.settings)
    trtcache.export(module, tmp_path / "program.pt2")
    content = (tmp_path / "program.pt2").read_bytes()
    assert str(Path(trtcache.__file__).parent).encode() not in content
    assert b'"host"' not in content


def test_ranges_of_sizes_are_kept(interpreter: str, tmp_path: Path) -> None:
    """Sizes vary as far as they did when the program was compiled."""
    form = forms()["dynamic in parts"]
    module = trtcache.compile(
        form.model(), form.args, dynamic_shapes=form.shapes, backend=interpreter, settings=form.settings
    )
    trtcache.export(module, tmp_path / "program.pt2")
    found = torch.export.load(tmp_path / "program.pt2").range_constraints.values()
    assert sorted((int(one.lower), int(one.upper)) for one in found) == [(1, 8), (2, 64)]


def test_a_loaded_program_is_refitted_with_a_state_dict(interpreter: str, tmp_path: Path) -> None:
    """It takes other weights as the compiled module does, and can be written again with them."""
    form = forms()["recipes in torch"]
    module = trtcache.compile(form.model(), form.args, backend=interpreter, settings=form.settings)
    trtcache.export(module, tmp_path / "program.pt2")
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    torch.manual_seed(7)
    other = form.model()
    loaded.refit(other)
    module.refit(other)
    assert same(loaded(*form.args), module(*form.args))
    trtcache.export(loaded, tmp_path / "again.pt2")
    assert same(trtcache.load(tmp_path / "again.pt2", trust="local-file")(*form.args), module(*form.args))


def test_a_program_takes_no_other_constants() -> None:
    """A mapping with another tensor for one is refused; an equal one is taken."""
    scale = torch.tensor([1.0, 2.0])
    renewal = _Renewal(None, frozenset({"scale"}), {"scale": Content.of(scale)}, None)
    assert list(renewal._read({"scale": scale.numpy()})) == ["scale"]
    with pytest.raises(RefitError, match=r"scale .a constant of the program; compile the new model instead"):
        renewal._read({"scale": scale + 1})


def test_a_loaded_program_with_constants_is_written_again(interpreter: str, tmp_path: Path) -> None:
    """Weights may have any name, and constants of an engine travel as often as it is written."""
    model = torch.nn.Module()
    for name in ("engine", "constants", "tensor", "_contents"):
        model.add_module(name, torch.nn.Linear(4, 4))
    model.register_buffer("module", torch.randn(4), persistent=False)
    model.forward = lambda x: (model.engine(x) + model.module).max(1)
    module = trtcache.compile(model, (torch.randn(3, 4),), backend=interpreter)
    for written in ("first", "second"):
        trtcache.export(module, tmp_path / written)
        module = trtcache.load(tmp_path / written, trust="local-file")
        found, expected = module(torch.ones(3, 4)), model(torch.ones(3, 4))
        assert torch.equal(found.values, expected.values)
        assert torch.equal(found.indices, expected.indices)


def test_weights_of_a_model_that_is_gone_are_written(interpreter: str, tmp_path: Path) -> None:
    """A weight that an engine's was made from is kept by the module."""
    form = forms()["recipes"]
    model = form.model()
    expected = model.state_dict()
    module = trtcache.compile(model, form.args, backend=interpreter)
    del model
    gc.collect()
    trtcache.export(module, tmp_path / "program.pt2")
    written = torch.export.load(tmp_path / "program.pt2").state_dict
    assert written.keys() <= expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in written.items())


def test_torchs_program_runs_no_engine(interpreter: str, tmp_path: Path) -> None:
    """torch.export.load verifies nothing, so the engines in what it opened do not run."""
    module = trtcache.compile(torch.nn.Linear(4, 4), (torch.randn(3, 4),), backend=interpreter)
    trtcache.export(module, tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    with pytest.raises(IncompatibleEngineError, match=r"trtcache\.load does"):
        program.module()(torch.randn(3, 4))


def test_a_program_without_results_is_refused(interpreter: str, tmp_path: Path) -> None:
    """Nothing is written, since torch cannot write it, and the message says what is missing."""
    model = trtcache.compile(_Nothing(), (torch.randn(2),), backend=interpreter)
    with pytest.raises(ProgramFileError, match="the model returns nothing"):
        trtcache.export(model, tmp_path / "program.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_torch_cannot_write_is_refused(interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and the message has torch's words."""
    model = trtcache.compile(torch.nn.Linear(4, 4), (torch.randn(3, 4),), backend=interpreter)

    def save(*_: object) -> None:
        raise ValueError("not a form of ours")

    monkeypatch.setattr(torch.export, "save", save)
    with pytest.raises(ProgramFileError, match=r"torch\.export\.save cannot write the program: .*not a form of ours"):
        trtcache.export(model, tmp_path / "program.pt2")
    assert list(tmp_path.iterdir()) == []


class _Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[()]:
        return ()


def test_a_loaded_program_in_parts_with_constants_is_written_again(interpreter: str, tmp_path: Path) -> None:
    """Constants of its engines, and of what stays in torch, travel as often as it is written."""
    model = torch.nn.Linear(4, 4)
    for name in ("one", "two", "three"):
        model.register_buffer(name, torch.randn(4), persistent=False)
    lin = torch.nn.functional.linear
    model.forward = lambda x: lin((lin(x, model.weight) * model.one).softmax(1) + model.two, model.weight) * model.three
    settings = {"torch_executed_ops": ["aten.softmax"]}
    module = trtcache.compile(model, (torch.randn(3, 4),), backend=interpreter, settings=settings)
    assert len(module.report.partitions) > 1
    for written in ("first", "second"):
        trtcache.export(module, tmp_path / written)
        module = trtcache.load(tmp_path / written, trust="local-file")
        torch.testing.assert_close(module(torch.ones(3, 4)), model(torch.ones(3, 4)).detach())


def test_a_device_without_memory_is_not_a_damaged_file(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error that torch raises for it passes, though it is a ``RuntimeError``."""
    path = tmp_path / "program.pt2"
    trtcache.export(trtcache.compile(torch.nn.Linear(3, 4), (torch.zeros(2, 3),), backend=interpreter), path)

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(load_module, "load_engine", fail)
    with pytest.raises(torch.OutOfMemoryError):
        trtcache.load(path, trust="local-file")

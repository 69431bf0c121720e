"""How engines travel, which target is taken, and what is said where none fits."""

from __future__ import annotations

import base64
import copy
import errno
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.bundle.archives import resealed
from tests.bundle.programs import forms, same
from tests.partition.parts import Twice
from trtcache.backends import fitness
from trtcache.backends.fitness import StoredTarget
from trtcache.bundle import engines as payloads
from trtcache.bundle import export as exporting
from trtcache.bundle import save as saving
from trtcache.bundle.archive import PROGRAM, choose
from trtcache.compiler.stored_program import rebuild_program
from trtcache.errors import (
    MissingEngineError,
    NoFittingEngineError,
    ProgramFileError,
    ProgramSizesError,
    SettingsError,
    TamperedProgramError,
    WeightMapError,
)
from trtcache.target import host_flags, host_platform

if TYPE_CHECKING:
    from pathlib import Path

X = torch.ones(3, 4)


def engines_of(path: Path) -> list[str]:
    """Return what stands for each engine in the graph that torch opens."""
    operator = torch.ops.trtcache.execute_engine.default
    return [str(node.args[2]) for node in torch.export.load(path).graph.nodes if node.target is operator]


@pytest.mark.parametrize("way", ["embed", "sidecar", "reference"])
def test_every_way_gives_the_same_answers(
    way: str, compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines in the file, beside it and in a cache are the same engines."""
    path = tmp_path / "program.pt2"
    written = trtcache.export(compiled, path, engines=way)
    assert len(written.files) == (2 if way == "sidecar" else 1)
    root = str(compiled.report.partitions[0].path).partition("/entries/")[0]
    monkeypatch.setenv("TRTCACHE_DIR", root)
    loaded = trtcache.load(path, trust="local-file")
    assert torch.equal(loaded(X), compiled(X))
    assert loaded.report.partitions[0].outcome == ("hit" if way == "reference" else "carried")
    (text,) = engines_of(path)
    assert text.startswith({"sidecar": "file:program.", "reference": "store:b3:"}.get(way, ""))


def test_the_text_in_the_graph_is_the_engine(compiled: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A small engine stands in the graph as base64, with its key document, weight map and specs."""
    trtcache.export(compiled, tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    (node,) = (one for one in program.graph.nodes if one.target is torch.ops.trtcache.execute_engine.default)
    _, weights, engine, key, weight_map, inputs, outputs = node.args
    assert compiled.origin is not None
    entry = compiled.origin.entries[0]
    assert base64.b64decode(str(engine)) == bytes(entry.read("engine"))
    assert json.loads(str(key)) == [entry.key.document]
    assert json.loads(str(weight_map)) == {"w0": {"slot": 0}, "w1": {"slot": 1}}
    assert [one["shape"] for one in json.loads(str(inputs))["inputs"]] == [[3, 4]]
    assert [one["dtype"] for one in json.loads(str(outputs))] == ["float32"]
    assert len(weights) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["single output", "recipes in torch"])
def test_large_engines_are_constants(
    name: str, interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: Path
) -> None:
    """An engine above the limit is a constant of bytes, which torch opens as such."""
    monkeypatch.setattr(payloads, "MAX_TEXT_BYTES", 4)
    form = forms()[name]
    shapes = {"dynamic_shapes": form.shapes} if form.shapes else {}
    module = trtcache.compile(
        form.model(), form.args, backend=interpreter, settings=form.settings, cache=engines, **shapes
    )
    trtcache.export(module, tmp_path / "program.pt2")
    assert same(trtcache.load(tmp_path / "program.pt2", trust="local-file")(*form.args), module(*form.args))
    program = torch.export.load(tmp_path / "program.pt2")
    assert module.origin is not None
    for text, (number, entry) in zip(engines_of(tmp_path / "program.pt2"), module.origin.entries.items(), strict=True):
        _, offset, size, digest = text.split(":", 3)
        content = program.constants[f"trtcache_engine_{number}"]
        assert bytes(content.numpy())[int(offset) : int(offset) + int(size)] == bytes(entry.read("engine"))
        assert digest.startswith("b3:")


def test_a_reference_that_no_store_has_says_where_it_looked(
    compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the engine, the cache, and what to do."""
    trtcache.export(compiled, tmp_path / "program.pt2", engines="reference")
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "other"))
    with pytest.raises(MissingEngineError, match=r"which is not in .*other; name the cache") as caught:
        trtcache.load(tmp_path / "program.pt2", trust="local-file")
    assert caught.value.exit_code == 5


def test_engines_are_stored_where_asked(
    interpreter: str, compiled: trtcache.CompiledModule, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded program's engine is a hit for whoever compiles the same model with that cache."""
    trtcache.load(program, trust="local-file", cache=tmp_path / "cache")
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    module = trtcache.compile(torch.nn.Linear(4, 4), (X,), backend=interpreter, cache=tmp_path / "cache")
    assert module.report.partitions[0].outcome == "hit"


def test_another_file_beside_a_program_is_refused(compiled: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A sound entry with another content is not the one that was written, and a damaged one is none."""
    _, beside = trtcache.export(compiled, tmp_path / "program.pt2", engines="sidecar").files
    content = beside.read_bytes()
    _, again = trtcache.export(_renamed(compiled), tmp_path / "other.pt2", engines="sidecar").files
    again.replace(beside)
    with pytest.raises(TamperedProgramError, match="was written with it"):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")
    beside.write_bytes(content[:-1])
    with pytest.raises(TamperedProgramError, match="the file of its engines is damaged"):
        trtcache.load(tmp_path / "program.pt2", trust="local-file")


def _renamed(module: trtcache.CompiledModule) -> trtcache.CompiledModule:
    """Return a module whose entry has another name: the same key, and another file."""
    assert module.origin is not None
    other = module.with_weights({"weight": torch.zeros(4, 4), "bias": torch.zeros(4)})
    entry = replace(module.origin.entries[0], name="other")
    other.origin = replace(module.origin, entries={0: entry})
    return other


def test_several_targets_are_in_one_file_and_the_best_is_taken(
    compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of levels that a processor has the highest is taken, and the report says which."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "program.pt2"
    written = trtcache.export(compiled, path, target=["x86-64", "x86-64-v3", "x86-64-v2"])
    assert [label.rpartition(" ")[2] for label in written.targets] == ["x86-64", "x86-64-v3", "x86-64-v2"]
    loaded = trtcache.load(path, trust="local-file")
    assert loaded.report.target.endswith("x86-64-v3")
    assert torch.equal(loaded(X), compiled(X))
    older = host_flags() - {"avx2"}
    monkeypatch.setattr(fitness, "host_flags", lambda: older)  # the processor's facts, at the border
    assert trtcache.load(path, trust="local-file").report.target.endswith("x86-64-v2")
    assert engines_of(path)[0].count(",") == 2


def test_a_processor_that_lacks_instructions_is_told_what_to_do(
    compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program for x86-64-v4 is refused without it, with the next lower level (the processor's facts are faked)."""
    monkeypatch.setenv("TRTCACHE_DIR", str(tmp_path / "cache"))
    if not {"avx512f", "avx512bw"} <= host_flags():
        pytest.skip("this processor has no AVX-512, and cannot be asked for it")
    trtcache.export(compiled, tmp_path / "program.pt2", target="x86-64-v4")
    flags = {flag for flag in host_flags() if not flag.startswith("avx512")}
    monkeypatch.setattr(fitness, "host_flags", lambda: flags)
    with pytest.raises(NoFittingEngineError, match=r"lacks avx512bw.*--target x86-64-v3") as caught:
        trtcache.load(tmp_path / "program.pt2", trust="local-file")
    assert caught.value.exit_code == 6


def _offer(number: int = 0, **changes: Any) -> StoredTarget:
    target = {
        "platform": host_platform(), "device": "cpu", "level": "x86-64", "instruction_sets": [], "capability": None,
    }  # fmt: skip
    toolchain = {"torch": torch.__version__, "torch_git": torch.version.git_version}
    for name, value in changes.items():
        (target if name in target else toolchain)[name] = value
    return StoredTarget(number, "aot_inductor", f"target {number}", target, toolchain, lambda _: b"")


REFUSED = {
    "version": ({"torch": "2.0"}, r"built with torch 2\.0, and this is torch", "run it with torch 2.0"),
    "platform": ({"platform": "plan9-mips"}, "it is for plan9-mips", "export it for this machine"),
    "instruction set": ({"instruction_sets": ["quantum"]}, "lacks quantum", "--target x86-64"),
    "capability": ({"device": "cuda", "capability": "9.9"}, "no CUDA device", "make aot_inductor available"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(name: str) -> None:
    """Version, platform, instruction sets and a GPU: each has its own reason and its own remedy."""
    changes, why, remedy = REFUSED[name]
    with pytest.raises(NoFittingEngineError, match=why) as caught:
        choose([_offer(**changes)], "program.pt2")
    assert remedy in caught.value.remedy


def test_the_remedy_is_the_least_to_do() -> None:
    """Of several reasons all are told, and the remedy is that of the nearest."""
    offers = [_offer(0, platform="plan9-mips"), _offer(1, torch="2.0"), _offer(2, instruction_sets=["quantum"])]
    with pytest.raises(NoFittingEngineError) as caught:
        choose(offers, "program.pt2")
    assert [one.partition(":")[0] for one in caught.value.refused] == ["target 0", "target 1", "target 2"]
    assert caught.value.remedy.startswith("run it with torch 2.0")


def test_a_loaded_program_cannot_be_built_for_another_target(program: Path, tmp_path: Path) -> None:
    """Nobody knows its settings any more: the message says what to export instead."""
    loaded = trtcache.load(program, trust="local-file")
    with pytest.raises(ProgramFileError, match=r"export the module that trtcache\.compile returned"):
        trtcache.export(loaded, tmp_path / "other.pt2", target="x86-64-v2")


def test_a_way_that_is_unknown_is_refused(
    compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the ways that there are. Nothing is built before, nor for a folder that is not there."""
    monkeypatch.setattr(exporting, "build_for_target", None)
    with pytest.raises(SettingsError, match="embed, sidecar, reference"):
        trtcache.export(compiled, tmp_path / "program.pt2", engines="pigeon", target="x86-64-v2")
    with pytest.raises(FileNotFoundError, match="its directory does not exist"):
        trtcache.export(compiled, tmp_path / "missing" / "program.pt2", target="x86-64-v2")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")], ids=["interrupted", "full"])
def test_an_export_that_fails_leaves_the_files_of_before(
    error: BaseException, compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a new file beside a program nor another one in its place; on a full disk the file is named."""
    trtcache.export(compiled, tmp_path / "program.pt2", engines="sidecar")
    before = {one.name: one.stat().st_ino for one in tmp_path.iterdir()}

    def failing(path: Path) -> None:
        raise error

    monkeypatch.setattr(saving, "_fsync", failing)
    for name in ("program", "other"):
        with pytest.raises(type(error)) as caught:
            trtcache.export(compiled, tmp_path / f"{name}.pt2", engines="sidecar")
        if isinstance(error, OSError):
            assert f"free space in {tmp_path}" in str(caught.value)
            assert f"{name}.pt2" in str(caught.value)
    assert {one.name: one.stat().st_ino for one in tmp_path.iterdir()} == before


def test_weights_that_do_not_fit_are_one_error(program: Path) -> None:
    """A program whose weights are not those that its engine takes is refused before the engine is loaded."""
    name = "data/weights/model_weights_config.json"
    with zipfile.ZipFile(program) as archive:
        config = json.loads(archive.read(f"program/{name}"))
    config["config"]["weight"]["tensor_meta"]["sizes"] = [{"as_int": 2}, {"as_int": 4}]
    resealed(program, name, json.dumps(config).encode())
    with pytest.raises(WeightMapError, match=r"weight \(shape \(2, 4\)"):
        trtcache.load(program, trust="local-file")


RETARGETED = ["every structure", "buffer changed", "no state_dict has it", "recipes", "dynamic"]


@pytest.mark.parametrize("name", RETARGETED)
def test_a_program_for_another_target_is_the_one_that_compile_makes_for_it(
    name: str, interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built from what is stored, has the same key, and answers alike, changed buffers and inputs included."""
    form, cache = forms()[name], tmp_path / "cache"
    asked: dict[str, Any] = {"backend": interpreter, "settings": form.settings, "cache": cache}
    asked |= {"dynamic_shapes": form.shapes} if form.shapes else {}
    torch.manual_seed(1)
    model = form.model()
    module = trtcache.compile(model, form.args, dict(form.kwargs), **asked)
    trtcache.export(module, tmp_path / "program.pt2", target="x86-64", cache=cache)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    trtcache.compile(model, form.args, dict(form.kwargs), target="x86-64", **asked)
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    for args in form.others or (form.args, form.args):
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        assert same((module(*mine), mine), (loaded(*theirs), theirs))


def test_engines_that_are_not_stored_are_those_of_their_parts(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cache the file has what was built, and a backend writes each engine to a file of the same name."""
    monkeypatch.setenv("TRTCACHE_DISABLE", "1")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(1), torch.nn.Linear(4, 4), torch.nn.ReLU())
    program = torch.export.export(model.eval(), (X,))
    settings = trtcache.Settings(torch_executed_ops=("aten.softmax",), build_processes=1)
    exporting.export_program(
        program,
        tmp_path / "program.pt2",
        engines="embed",
        targets=[],
        backend=interpreter,
        settings=settings,
        cache=trtcache.Cache(tmp_path / "cache"),
        name="model",
    )
    loaded = trtcache.load(tmp_path / "program.pt2", trust="local-file")
    assert loaded.report.left
    torch.testing.assert_close(loaded(X), model(X).detach())


def test_a_stored_graph_that_becomes_another_program_is_refused(
    interpreter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine of another program goes into the file; the file of before stays."""
    form = forms()["dynamic"]
    module = trtcache.compile(form.model(), form.args, dynamic_shapes=form.shapes, backend=interpreter)

    def without_a_pass(*args: Any, **kwargs: Any) -> Any:
        program = rebuild_program(*args, **kwargs)
        assert program.example_sizes  # the usual sizes are those of the example
        return replace(program, pipeline=program.pipeline[1:])

    monkeypatch.setattr("trtcache.bundle.export.rebuild_program", without_a_pass)
    with pytest.raises(ProgramFileError, match=r"gives another program when it is rebuilt \(pipeline differ\)"):
        trtcache.export(module, tmp_path / "program.pt2", target="x86-64")
    assert not (tmp_path / "program.pt2").exists()


def test_an_operator_whose_library_is_not_here_is_named(interpreter: str, tmp_path: Path) -> None:
    """A custom operator stays in torch, and is in the file by its name; where it is unknown the message says so."""
    module, x = trtcache.compile(Twice(), (torch.ones(3, 8),), backend=interpreter), torch.ones(3, 8)
    path = tmp_path / "program.pt2"
    trtcache.export(module, path)
    assert same(trtcache.load(path, trust="local-file")(x), module(x))
    with zipfile.ZipFile(path) as archive:
        content = archive.read(f"program/{PROGRAM}").replace(b"trtcache_parts.double", b"trtcache_parts.triple")
    resealed(path, PROGRAM, content)
    with pytest.raises(
        NoFittingEngineError, match=r"operator trtcache_parts::triple is not registered\); import the library"
    ):
        trtcache.load(path, trust="local-file")


def test_programs_beyond_4_gib_are_read(
    compiled: trtcache.CompiledModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and places of 64 bits, which an archive has beyond 4 GiB and this one for less."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = tmp_path / "program.pt2"
    trtcache.export(compiled, path)
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    assert b"PK\x06\x06" in data
    data[end + 8 : end + 20] = b"\xff" * 12
    path.write_bytes(data)
    assert torch.equal(trtcache.load(path, trust="local-file")(X), compiled(X))
    for place, size in ((data.rindex(b"PK\x06\x07") + 8, 8), (data.rindex(b"PK\x06\x06") + 40, 8)):
        broken = bytearray(data)
        broken[place : place + size] = b"\xff" * size
        path.write_bytes(broken)
        with pytest.raises(ProgramSizesError):
            trtcache.load(path, trust="local-file")

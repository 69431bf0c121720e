"""``trtcache why``, ``diff`` and ``lower``: what differs in words, for entries and for programs in files."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.documents import console, shape
from tests.keys.designs import picture, sequence
from trtcache.backends import registry
from trtcache.compiler import build
from trtcache.digests import CacheKey
from trtcache.keys.graph_digest import graph_document, graph_records
from trtcache.lowering import lower
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.keys.designs import Variant

    from .conftest import Result


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Variant], Path]:
    """Export a program into a file, once."""
    folder = tmp_path_factory.mktemp("programs")

    def save(variant: Variant) -> Path:
        path = folder / f"{type(variant.model).__name__.lower()}-{hash(variant.model.design)}.pt2"
        if not path.exists():
            torch.export.save(torch.export.export(variant.model, variant.args, strict=False), path)
        return path

    return save


@pytest.fixture
def put_program(root: Path) -> Callable[[Path], str]:
    """Store an entry with the real key and graph of a program in a file, and return its digest."""

    def put(path: Path) -> str:
        program = torch.export.load(path)
        key, _ = build.key_and_graph(program, name=path.stem)
        keep = registry.find("auto", "cpu").capabilities.keep
        lowered = lower(torch.export.load(path), keep=keep)
        graph = graph_document(lowered, graph_records(lowered)[0])
        built = {"engine": b"engine", "graph.json": json.dumps(graph).encode()}
        trtcache.Cache(root).get_or_build_key(key, lambda: built, name="model")
        return key.digest

    return put


def test_a_program_that_would_hit_says_so(
    run: Callable[..., Result], saved: Callable[..., Path], put_program: Callable[..., str]
) -> None:
    """The file's key is the key of its entry."""
    path = saved(sequence())
    digest = put_program(path)
    assert run("why", path).err == f"hit: {digest[:16]} is cached\n"
    assert run("why", path, "--json").json == {
        "key": digest,
        "outcome": "hit",
        "reason": "",
        "nearest": None,
        "differences": [],
    }


def test_a_program_that_would_miss_says_why(
    run: Callable[..., Result], saved: Callable[..., Path], put_program: Callable[..., str]
) -> None:
    """The nearest of two entries, and the one thing that differs; the cause on standard output, the rest beside it."""
    put_program(saved(picture()))
    digest = put_program(saved(sequence()))
    done = run("why", saved(sequence(epsilon=1e-6)))
    assert done.out == "graph: node native_layer_norm argument eps: 1e-05 -> 1e-06\n"
    assert re.fullmatch(rf"miss [0-9a-f]{{16}}: nearest is {digest[:16]} \(model\)\n", done.err)
    ((headline, _),) = console("docs/overview.md")["trtcache why net.pt2"]
    assert shape(headline).replace("net", "model") == shape(done.err)
    document = run("why", "--json", saved(sequence(epsilon=1e-6))).json
    assert (document["outcome"], document["nearest"]) == ("miss", digest)
    assert [one["text"] for one in document["differences"]] == done.out.splitlines()


def test_a_target_is_part_of_the_question(
    run: Callable[..., Result], saved: Callable[..., Path], put_program: Callable[..., str]
) -> None:
    """The same program for a named level of x86-64 differs in the level."""
    path = saved(picture())
    put_program(path)
    assert run("why", path, "--target", "x86-64").out == "target.level: native -> x86-64\n"


def test_a_function_is_looked_up_as_a_cell_of_a_matrix(
    run: Callable[..., Result],
    saved: Callable[..., Path],
    put_program: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MODULE:FUNCTION is what ``build`` and ``warm`` take."""
    digest = put_program(saved(sequence()))
    designs = "from tests.keys.designs import sequence\n"
    function = "def {}():\n    made = sequence({})\n    return made.model.eval(), made.args\n"
    (tmp_path / "why_zoo.py").write_text(designs + function.format("same", "") + function.format("other", "dim=2"))
    monkeypatch.chdir(tmp_path)
    assert run("why", "why_zoo:same").err == f"hit: {digest[:16]} is cached\n"
    assert run("why", "why_zoo:other").out == "graph: node softmax argument dim: 1 -> 2\n"
    gone = run("why", "why_zoo:gone")
    assert (gone.code, "it cannot be imported" in gone.err) == (2, True)
    assert run("why", f"b3:{digest[:8]}").err.startswith(f"entry {digest[:16]}")
    (tmp_path / "why_zoo.pt2").mkdir()
    assert "why_zoo.pt2: it is a directory" in run("why", "why_zoo.pt2").err


def test_what_a_function_raises_is_an_error_of_the_function(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no unexpected error of trtcache."""
    (tmp_path / "why_raises.py").write_text("def model():\n    raise RuntimeError('there are no weights')\n")
    (tmp_path / "why_fails.py").write_text("raise OSError('there is no disk')\n")
    monkeypatch.chdir(tmp_path)
    raised, failed = run("build", "why_raises:model"), run("why", "why_fails:model")
    assert (raised.code, failed.code) == (2, 2)
    assert "why_raises:model: it raised RuntimeError: there are no weights" in raised.err
    assert "why_fails:model: it cannot be imported: OSError: there is no disk" in failed.err


def test_a_function_that_exits_is_an_error(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code would be 0, and nothing built: a scheduler takes that for done."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "why_exits.py").write_text("def model():\n    raise SystemExit(0)\n")
    (tmp_path / "why_is_a_script.py").write_text("import sys\nsys.exit()\n")
    called, imported = run("build", "why_exits:model"), run("build", "why_is_a_script:model")
    assert (called.code, imported.code) == (2, 2)
    assert "why_exits:model: it raised SystemExit: 0" in called.err
    assert "why_is_a_script:model: it cannot be imported: SystemExit" in imported.err


def test_a_function_imports_from_the_current_folder_whenever_it_does(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is called, and while its model is exported; afterwards only what its module inserted is in the path."""
    (tmp_path / "why_called.py").write_text("args = (__import__('torch').ones(2),)\n")
    (tmp_path / "why_exported.py").write_text("factor = 2.0\n")
    lines = (
        *("import sys", "import torch", "sys.path.insert(0, '/why-inserted')", "class Net(torch.nn.Module):"),
        *("    def forward(self, x):", "        from why_exported import factor", "        return x * factor"),
        *("def model():", "    from why_called import args", "    return Net(), args"),
    )
    (tmp_path / "why_imports.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    monkeypatch.setattr("sys.path", [*before])
    done = run("why", "why_imports:model")
    assert (done.code, done.err.startswith("miss ")) == (0, True), done.err
    assert sys.path == ["/why-inserted", *before]


def test_an_entry_that_is_not_trusted_is_no_hit(
    run: Callable[..., Result],
    saved: Callable[..., Path],
    put_program: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is a file, which ``compile`` would not use, with the reason of that miss."""
    path = saved(sequence())
    digest = put_program(path)
    monkeypatch.setenv("TRTCACHE_SIGNATURES", "require")
    done = run("why", path)
    assert (done.out, done.err) == ("", f"miss: the entry {digest[:16]} cannot be used: untrusted:unsigned\n")
    document = run("why", path, "--json").json
    assert (document["outcome"], document["reason"]) == ("miss", "untrusted:unsigned")


def test_an_entry_is_compared_with_the_nearest_of_its_name(
    run: Callable[..., Result], saved: Callable[..., Path], put_program: Callable[..., str]
) -> None:
    """``why KEY`` explains why there are two; ``diff`` compares any two in the given order."""
    one, other = put_program(saved(sequence())), put_program(saved(sequence(dim=2)))
    assert run("why", other).out == "graph: node softmax argument dim: 1 -> 2\n"
    assert run("why", one).out == "graph: node softmax argument dim: 2 -> 1\n"
    assert run("diff", one[:12], other[:12]).out == "graph: node softmax argument dim: 1 -> 2\n"
    document = run("diff", "--json", one, other).json
    assert (document["first"], document["second"]) == (one, other)
    assert document["differences"] == [
        {
            "where": "graph: node softmax argument dim",
            "before": "1",
            "after": "2",
            "alike": 0,
            "text": "graph: node softmax argument dim: 1 -> 2",
        }
    ]


def test_entries_of_other_builders_are_compared_by_their_parts(run: Callable[..., Result], store: DiskStore) -> None:
    """Named parts of get_or_build, without a graph; long lists end with the number of omitted ones."""
    keys = [CacheKey.of("onnx", {"opset": opset, "many": {f"n{n}": n * opset for n in range(50)}}) for opset in (1, 2)]
    for key in keys:
        store.put(key, {"artifact": b""}, kind="onnx", name="mine")
    out = run("diff", *keys).out.splitlines()
    assert out[0] == "many.n1: 1 -> 2"
    assert out[-1] == "... and 10 more; --json has all"
    assert run("why", keys[0]).out.splitlines()[0] == "many.n1: 2 -> 1"


def test_the_nearest_entry_may_be_in_a_lower_layer(
    run: Callable[..., Result], store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all layers, not of the first that has an entry of the name."""
    lower = DiskStore.open(tmp_path / "lower")
    keys = [CacheKey.of("onnx", {"opset": opset, "flags": flags}) for opset, flags in ((1, 1), (2, 2), (1, 2))]
    for where, key in zip((store, store, lower), keys, strict=True):
        where.put(key, {"artifact": b""}, kind="onnx", name="mine")
    monkeypatch.setenv("TRTCACHE_PATH", f"{store.root}:{lower.root}")
    monkeypatch.delenv("TRTCACHE_DIR")
    assert run("why", keys[0]).out == "flags: 2 -> 1\n"


def test_an_entry_alone_has_nothing_to_be_compared_with(run: Callable[..., Result], put: Callable[..., str]) -> None:
    """Entries of other names do not count."""
    digest = put(1)
    put(2)
    done = run("why", digest)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"entry {digest[:16]}: there is no other entry of its name\n"


def test_a_program_of_another_kind_is_nothing_to_compare_with(
    run: Callable[..., Result], saved: Callable[..., Path], put_program: Callable[..., str]
) -> None:
    """A miss names no entry of an unrelated program."""
    put_program(saved(picture()))
    done = run("why", saved(sequence()))
    assert (done.code, done.out) == (0, "")
    assert re.fullmatch(r"miss [0-9a-f]{16}: there is no similar entry\n", done.err)


def test_a_file_that_is_no_program_exits_with_1(run: Callable[..., Result], store: DiskStore, tmp_path: Path) -> None:
    """One line, for ``why`` and for ``lower``; a missing one too, and an unknown key exits with 5."""
    path = tmp_path / "broken.pt2"
    path.write_bytes(b"junk")
    for command in ("why", "lower"):
        done = run(command, path)
        assert done.code == 1
        assert "it is no exported program" in done.err
        assert done.err.startswith(f"trtcache: error: {path}: ")
    assert run("why", tmp_path / "none.pt2").code == 1
    assert run("why", "abc").code == 5


def test_lower_prints_the_graph(run: Callable[..., Result], saved: Callable[..., Path]) -> None:
    """A line for each node, under the names that differences use."""
    path = saved(sequence())
    out = run("lower", path).out
    assert re.search(r"^softmax: f32\[2,6,16\] = aten\._softmax\.default\(\w+, \d, False\)$", out, re.MULTILINE)
    document = run("lower", path, "--json").json
    assert (document["name"], document["text"]) == (path.stem, out)
    assert document["nodes"] == len(out.splitlines()) - 1
    names = [one["pass"] for one in document["passes"]]
    assert names == [spec for spec in document["pipeline"] if spec in names]


def test_lower_shows_what_a_pass_changes(run: Callable[..., Result], saved: Callable[..., Path]) -> None:
    """As a unified diff, with the seconds on standard error; ``all`` shows each pass in order."""
    path = saved(sequence())
    shown: list[dict[str, Any]] = run("lower", path, "--json").json["passes"]
    changed = next(one for one in shown if one["modified"])
    name = changed["pass"].partition("@")[0]
    done = run("lower", path, "--show", name)
    assert done.out.startswith(f"--- before\n+++ after {name}\n@@ ")
    assert re.search(rf"^{re.escape(changed['pass'])}: \d", done.err, re.MULTILINE)
    everything = run("lower", path, "--show", "all")
    assert len(everything.err.splitlines()) == len(shown)
    assert all(bool(one["diff"]) == one["modified"] for one in shown)


def test_a_pass_that_there_is_not_is_named(run: Callable[..., Result], saved: Callable[..., Path]) -> None:
    """With the nearest name that there is."""
    done = run("lower", saved(sequence()), "--show", "dead_cod")
    assert done.code == 2
    assert "did you mean 'dead_code'?" in done.err


def test_a_program_that_cannot_be_cached_says_why(run: Callable[..., Result], store: DiskStore, tmp_path: Path) -> None:
    """With what stays in torch, and the setting that would make it an engine's."""
    from tests.keys.test_uncacheable import Scaled

    path = tmp_path / "scaled.pt2"
    torch.export.save(torch.export.export(Scaled(), (torch.ones(3, 4),), strict=False), path)
    done = run("why", path)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(
        "uncacheable: scaled: it is compiled in 2 parts, engines with keys of their own: 1; in torch"
    )
    assert "custom operator trtcache_tests::scale can change without its name doing so; declare its version" in done.err
    assert run("why", path, "--json").json["outcome"] == "uncacheable"

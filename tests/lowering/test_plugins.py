"""Passes of other distributions are found by entry point."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, distributions
from typing import TYPE_CHECKING

import pytest

from trtcache.errors import PassError
from trtcache.lowering.passes import _mentions, load_third_party, spec
from trtcache.lowering.stages import last_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

PASSES = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from trtcache.lowering.passes import Pass, PassResult

@dataclass(frozen=True, slots=True)
class NoGelu(Pass):
    """Replaces gelu by relu."""

    name: ClassVar[str] = "no_gelu"
    version: ClassVar[int] = 3

    def __call__(self, graph_module):
        found = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default)
        for node in found:
            node.target, node.kwargs = torch.ops.aten.relu.default, {}
        return PassResult(graph_module, bool(found))

@dataclass(frozen=True, slots=True)
class Early(NoGelu):
    name: ClassVar[str] = "early"

    def __call__(self, graph_module):
        return PassResult(graph_module, False)

@dataclass(frozen=True, slots=True)
class Failing(NoGelu):
    name: ClassVar[str] = "failing"

    def __call__(self, graph_module):
        raise RuntimeError("out of order")
'''


def install(site: Path, distribution: str, points: str) -> list[EntryPoint]:
    """Install a distribution with these entry points into a folder, as pip does, and return them."""
    folder = site / f"{distribution}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[trtcache.passes]\n{points}\n")
    (site / "other_passes.py").write_text(PASSES)
    return [point for one in distributions(path=[str(site)]) for point in one.entry_points]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of distributions that can be imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "other_passes", raising=False)
    return tmp_path


def test_an_installed_pass_runs_and_is_in_the_key(tmp_path: Path, run_python: RunPython) -> None:
    """In a process that has such a distribution its pass runs after ours, and its spec is in the key."""
    install(tmp_path, "others", "no_gelu = other_passes:NoGelu\nearly = other_passes:Early")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch
        from trtcache.lowering import lower
        program = lower(torch.nn.GELU(), (torch.ones(2),))
        print([str(node.target) for node in program.order if node.op == "call_function"], program.pipeline[-4:])
    """
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    specs = "('early@3', 'no_gelu@3', 'common_subexpressions@1', 'dead_code@1')"
    assert result.stdout.strip() == f"['aten.relu.default'] {specs}"


def test_a_folder_in_the_place_of_entry_points_is_none(tmp_path: Path) -> None:
    """It can be opened as a file can, and is not read."""
    (tmp_path / "odd-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    assert not _mentions(str(tmp_path))


def test_a_pass_that_fails_is_named_after_those_that_ran(tmp_path: Path, run_python: RunPython) -> None:
    """The error names the pass of the other distribution and, before it, our own."""
    install(tmp_path, "others", "failing = other_passes:Failing")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch
        from trtcache.errors import PassError
        from trtcache.lowering import lower
        try:
            lower(torch.nn.GELU(), (torch.ones(2),))
        except PassError as error:
            print(error.pass_name, error.why, error.before[0].partition("@")[0])
    """
    assert run_python(code).stdout.strip() == "failing raised RuntimeError: out of order assertions"


def test_passes_run_in_the_order_of_their_names(site: Path) -> None:
    """The order of installation has no say."""
    points = install(site, "others", "no_gelu = other_passes:NoGelu\nearly = other_passes:Early")
    for given in (points, points[::-1]):
        assert [spec(one) for one in load_third_party(given, ())] == ["early@3", "no_gelu@3"]


def test_two_passes_of_one_name_are_an_error_with_both_owners(site: Path) -> None:
    """Two distributions that offer one name are named, and so are we."""
    install(site, "others", "no_gelu = other_passes:NoGelu")
    points = install(site, "more", "no_gelu = other_passes:NoGelu")
    with pytest.raises(PassError, match=r"offered by both (others and more|more and others)"):
        load_third_party(points, ())
    with pytest.raises(PassError, match="offered by both trtcache and"):
        load_third_party(points[:1], {"no_gelu"})


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("a = nowhere_at_all:A", "cannot be loaded: No module named"),
        ("a = other_passes:Nothing", "cannot be loaded"),
        ("a = other_passes:NoGelu", "has the name 'no_gelu'"),
    ],
)
def test_a_pass_that_cannot_be_had_is_an_error(site: Path, point: str, why: str) -> None:
    """What is not there, or has another name than its entry point, is named with its owner."""
    points = install(site, "others", point)
    with pytest.raises(PassError, match=f"of others {why}"):
        load_third_party(points, ())


def test_nothing_is_run_where_nobody_asks() -> None:
    """Without other distributions and wishes there is no second pipeline."""
    assert last_pipeline((), ()).passes == ()

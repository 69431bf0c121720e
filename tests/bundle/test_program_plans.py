"""Programs with plans of TensorRT-RTX, which are built here and never run."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from tests.bundle.programs import forms
from tests.effort import TORTURE
from trtcache.backends.tensorrt.flavour import TENSORRT_RTX
from trtcache.errors import NoFittingEngineError, TrtcacheError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TENSORRT_RTX.installed, reason="TensorRT-RTX is not installed"),
]

BACKEND = "tensorrt_rtx"
QUICK = ("buffer changed in parts",)


def calls_in(path: Path) -> list[Any]:
    """Return the calls of engines in the graph that torch opens."""
    operator = torch.ops.trtcache.execute_engine.default
    return [node for node in torch.export.load(path).graph.nodes if node.target is operator]


def test_two_capabilities_are_in_one_file(tmp_path: Path, engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines in the graph are the store's, byte for byte; here none fits, and the message says why."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), torch.randn(3, 4)
    module = trtcache.compile(model, (x,), backend=BACKEND, target="sm_89", cache=engines)
    path = tmp_path / "program.pt2"
    written = trtcache.export(module, path, target=["sm_89", "sm_120"], cache=engines)
    assert [label.partition(",")[0] for label in written.targets] == ["cuda sm_89", "cuda sm_120"]
    (call,) = calls_in(path)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    for text, target in zip(str(call.args[2]).split(","), ("sm_89", "sm_120"), strict=True):
        other = trtcache.compile(model, (x,), backend=BACKEND, target=target, cache=engines)
        assert other.origin is not None
        assert base64.b64decode(text) == bytes(other.origin.entries[0].read("engine"))
    with pytest.raises(NoFittingEngineError, match=r"no NVIDIA GPU here.*run it on a machine with a GPU of sm_89"):
        trtcache.load(path, trust="local-file")


@pytest.mark.parametrize("name", sorted(forms()) if TORTURE else QUICK)
def test_every_form_is_written_with_plans(name: str, tmp_path: Path, engines: Path) -> None:
    """Each engine of the compiled module is in the graph, with the bytes that the store has."""
    form = forms()[name]
    shapes = {"dynamic_shapes": form.shapes} if form.shapes else {}
    try:
        module = trtcache.compile(
            form.model(),
            form.args,
            dict(form.kwargs),
            backend=BACKEND,
            target="sm_89",
            settings={**form.settings, "on_build_failure": "torch"},
            cache=engines,
            **shapes,
        )
    except TrtcacheError as error:
        pytest.skip(f"{BACKEND} does not compile it: {error}")
    assert module.origin is not None
    trtcache.export(module, tmp_path / "program.pt2")
    calls = calls_in(tmp_path / "program.pt2")
    stored = {bytes(entry.read("engine")) for entry in module.origin.entries.values()}
    assert {base64.b64decode(str(call.args[2])) for call in calls} == stored
    if stored:
        with pytest.raises(NoFittingEngineError):
            trtcache.load(tmp_path / "program.pt2", trust="local-file")

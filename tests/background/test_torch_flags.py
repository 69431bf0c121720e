"""Flags of torch that the worker of a background build gets."""

from __future__ import annotations

import json
import logging
import textwrap
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import torch

import trtcache
from trtcache.backends.aot_inductor.backend import ambient
from trtcache.compiler.background import BackgroundBuild, BuildThread
from trtcache.compiler.program_file import read_flags
from trtcache.frontends.resolve import resolve
from trtcache.frontends.source import CompileOptions
from trtcache.keys.key import process_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunPython

X = torch.randn(3, 8)

_WORKER = """
    import json
    from trtcache.compiler.program_file import set_flags
    set_flags(json.loads({flags!r}))
    from trtcache.backends.aot_inductor.backend import ambient
    from trtcache.keys.key import process_state
    print(json.dumps([ambient(), process_state()]))
"""


@pytest.fixture
def changed() -> Iterator[None]:
    """Change every flag for a while."""
    from torch._inductor import config

    attention = ("cudnn", "flash", "mem_efficient")
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.set_default_dtype(torch.float64)
    for kernel in attention:
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(enabled=False)
    with torch.backends.mkldnn.flags(enabled=False), config.patch({"epilogue_fusion": False, "cpp.simdlen": 256}):
        yield
    for kernel in attention:
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(enabled=True)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(mode=False)
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("changed")
def test_another_process_gets_what_keys_depend_on(run_python: RunPython) -> None:
    """After ``set_flags`` it has the ambient state of this one, and the state of torch that key aliases have."""
    overridden: Any = ambient()["inductor"]
    assert {"cpp.simdlen", "epilogue_fusion"} <= overridden.keys()
    flags = json.dumps(read_flags())
    found = json.loads(run_python(textwrap.dedent(_WORKER).format(flags=flags)).stdout)
    assert found == json.loads(json.dumps([ambient(), process_state()]))


def test_an_option_of_inductor_holds_in_the_thread_of_a_build(tmp_path: Path) -> None:
    """The caller has set it in its own context, and a new thread would have the default."""
    from torch._inductor import config

    source = resolve(torch.export.export(torch.nn.Linear(8, 2), (X,)), ())
    build = BackgroundBuild(source, CompileOptions.of(None, None, None), trtcache.Cache(tmp_path))
    seen: list[object] = []
    done = threading.Event()

    def load(how: str) -> None:
        seen.extend((how, ambient()["inductor"]))
        done.set()

    with config.patch({"epilogue_fusion": False}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundBuild, "run", lambda *_: "built")
        BuildThread(build, load, seen.append, ExitStack()).start()
        assert done.wait(30)
    assert seen == ["built", {"epilogue_fusion": False}]


@pytest.fixture(params=["precision", "pass"])
def unsendable(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set what no other process can have for a while; return what is said about it."""
    from torch._inductor import config

    if request.param == "pass":
        name = "bucket_all_gathers_fx_bucket_size_determinator"
        with config.patch({name: len}):
            yield f"torch._inductor.config.{name} cannot be sent to another process"
    else:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        yield "the precision of matrix products cannot be sent to another process: "
        torch.backends.cuda.matmul.fp32_precision = "none"


def test_flags_that_cannot_be_sent_mean_a_build_in_this_process(
    portable: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, unsendable: str
) -> None:
    """The log says which."""
    caplog.set_level(logging.INFO)
    options: dict[str, Any] = {"backend": portable, "cache": tmp_path / "cache", "on_miss": "background"}
    assert trtcache.compile(torch.nn.Linear(8, 2).eval(), (X,), **options).ready
    assert f"Linear is not built in the background: {unsendable}" in caplog.text

"""The contract of backends on AOTInductor, on builds of TensorRT-RTX, and on the interpreter."""

from __future__ import annotations

from typing import ClassVar

import pytest

from trtcache.testing import BackendContract

INDUCTOR = {"inductor": {"cpp.vec_isa_ok": True}}


@pytest.mark.usefixtures("interpreter")
class TestInterpreter(BackendContract):
    backend = "interpreter"
    persists = False


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
class TestAotInductor(BackendContract):
    backend = "aot_inductor"
    settings: ClassVar = INDUCTOR


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
class TestTensorRTRtx(BackendContract):
    backend = "tensorrt_rtx"
    target = "sm_89"
    runs = False

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("tensorrt_rtx")

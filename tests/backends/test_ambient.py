"""What the process says to Inductor beside its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from trtcache.backends.aot_inductor.backend import ambient, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


def test_the_environment_that_changes_code_is_taken_and_nothing_else() -> None:
    """Variables of Inductor count, except those of its caches and logs; others do not."""
    environ = {
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "TORCHINDUCTOR_FREEZING": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/x",
        "TORCHINDUCTOR_WORKER_START": "fork",
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "ATEN_CPU_CAPABILITY": "avx2",
        "HOME": "/root",
    }
    assert environment(environ) == {
        "ATEN_CPU_CAPABILITY": "avx2",
        "TORCHINDUCTOR_FREEZING": "1",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    }


@pytest.mark.parametrize(
    "name",
    [
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        "AOTINDUCTOR_REPRO_LEVEL",
        "INDUCTOR_PROVENANCE",
        "TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2",
    ],
)
def test_variables_of_inductor_with_other_prefixes_count(name: str) -> None:
    """A package of a debugging run prints tensors in each call: no other process may take it for its own."""
    assert environment({name: "2", "CI": "1", "CXX": "g++"}) == {name: "2"}


def deterministic() -> Iterator[None]:
    """Switch deterministic algorithms on for a while."""
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


def precision() -> Iterator[None]:
    """Lower the precision of matrix products for a while."""
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def precision_of_a_device() -> Iterator[None]:
    """Lower it in the newer way, after which torch does not tell it in the older one."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="precision"):
        torch.get_float32_matmul_precision()
    yield
    torch.backends.cuda.matmul.fp32_precision = "none"


def onednn() -> Iterator[None]:
    """Switch oneDNN off for a while."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def attention() -> Iterator[None]:
    """Forbid a kernel of attention for a while."""
    torch.backends.cuda.enable_math_sdp(enabled=False)
    yield
    torch.backends.cuda.enable_math_sdp(enabled=True)


@pytest.mark.parametrize("switch", [deterministic, precision, precision_of_a_device, onednn, attention])
def test_a_switch_of_torch_changes_it_and_back(switch: Callable[[], Iterator[None]]) -> None:
    """A process-wide switch is seen as long as it is set."""
    before, states = ambient(), switch()
    next(states)
    during = ambient()
    next(states, None)
    assert during != before
    assert ambient() == before


def test_an_option_of_inductor_counts_while_it_differs_from_its_default() -> None:
    """An option that is set to its default is as one that nobody set."""
    from torch._inductor import config

    before = ambient()
    for change, differs in (({"max_autotune": True}, True), ({"max_autotune": config.max_autotune}, False)):
        patched: AbstractContextManager[object] = config.patch(change)
        with patched:
            assert (ambient() != before) is differs
    with config.patch({"cpp.simdlen": 256}):
        assert ambient()["inductor"] == {"cpp.simdlen": 256}
    assert ambient() == before


def test_a_pass_of_inductor_counts_by_its_uuid() -> None:
    """A pass changes the code of an engine; a function that does not say what it depends on is not shared."""
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Pass(CustomGraphPass):
        def __init__(self, version: str) -> None:
            self.version = version

        def __call__(self, graph: object) -> None:
            """Do nothing."""

        def uuid(self) -> str:
            return self.version

    def found(value: object) -> object:
        with config.patch(post_grad_custom_post_pass=value):
            return ambient().get("passes")

    assert found(None) is None
    assert found(Pass("1")) == found(Pass("1"))
    assert found(Pass("1")) != found(Pass("2"))
    assert found(lambda graph: None) != found(lambda graph: None)

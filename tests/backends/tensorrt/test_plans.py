"""Plans of TensorRT-RTX from the front door: built on a CPU, kept, found again, and not run where they cannot be."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import trtcache
from tests.backends.tensorrt.plans import Small, compiled, ids, stored
from tests.models import retrained
from trtcache.errors import BuildError, NoDeviceError, RefitError, SettingsError
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

pytestmark = pytest.mark.slow


def test_minilm_is_a_plan_that_a_second_process_takes_from_the_cache(engines: Path, run_python: RunPython) -> None:
    """The whole model is one engine with every weight in it, and nobody builds it twice."""
    model = load_embedder()
    module = compiled(model, tokenize(), engines)
    facts, size_bytes = stored(module, engines)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    assert size_bytes > weights
    assert facts["weights"]["frozen"] == {}
    done = run_python(
        """
        import trtcache
        from trtcache_cli.demo_embedder import load_embedder, tokenize
        module = trtcache.compile(load_embedder(), tokenize(), backend="tensorrt_rtx", target="sm_89")
        print(module.report.partitions[0].outcome)
        """,
        TRTCACHE_DIR=str(engines),
        TRTCACHE_FORBID_BUILD="1",
    )
    assert done.stdout.split() == ["hit"], done.stderr


def test_a_plan_is_not_run_without_its_gpu_and_says_so(engines: Path) -> None:
    """A call of a module that was compiled for a GPU raises one clear error, and a refit says where its weights are."""
    model = Small()
    module = compiled(model, (ids(),), engines)
    with pytest.raises(NoDeviceError, match="runs on its GPU"):
        module(ids())
    with pytest.raises(RefitError, match=r"the plan is not refittable .*compile the model with the new weights"):
        module.refit(retrained(model))


def test_a_plan_with_weights_in_it_is_found_by_their_values(tmp_path: Path) -> None:
    """Equal weights under any names hit, other values build another plan, and the key's part is called frozen."""
    model = Small()
    first = compiled(model, (ids(),), tmp_path).report.partitions[0]
    same = compiled(copy.deepcopy(model), (ids(),), tmp_path).report.partitions[0]
    other = compiled(retrained(model), (ids(),), tmp_path).report.partitions[0]
    assert [one.outcome for one in (first, same, other)] == ["built", "hit", "built"]
    assert "frozen" in other.why
    assert other.frozen == len(list(model.parameters()))


@pytest.mark.parametrize("target", ["sm_86", "sm_120", "sm_86,sm_89,sm_120"])
def test_capabilities_have_plans_of_their_own(engines: Path, target: str) -> None:
    """Each capability, and three in one plan, is another entry."""
    module = compiled(Small(), (ids(),), engines, target=target)
    assert module.report.target == f"cuda {target}, linux-x86_64 plan"
    assert "frozen: it has the values of 6 weights in it" in str(module.report)


def test_turing_has_no_float32_products_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    """sm_75 refuses a float32 model with advice, and builds the same in float16."""
    with pytest.raises(BuildError, match=r"sm_75 .* float32 .*model\.half\(\).*target='sm_89'"):
        compiled(Small(), (ids(),), tmp_path, target="sm_75,sm_89")
    assert compiled(Small().half(), (ids(),), tmp_path, target="sm_75").report.partitions[0].path
    cast = compiled(Small(), (ids(),), tmp_path, target="sm_75", settings={"autocast": "fp16"})
    assert cast.report.partitions[0].path


def test_a_plan_that_takes_other_weights_is_built_on_a_gpu(tmp_path: Path) -> None:
    """Without one TensorRT-RTX cannot, and the error says so before anything is built; nothing is stored."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for wish in ({"refit": True}, {"strip": True}):
        with pytest.raises(NoDeviceError, match="built on a GPU"):
            compiled(Small(), (ids(),), tmp_path, settings={"tensorrt": wish})
    assert not list(tmp_path.glob("entries/*/*"))


def test_settings_reach_the_builder_and_the_key(tmp_path: Path) -> None:
    """A plan of every setting that the flavour has is built, and one with others is another entry."""
    most = {"optimization_level": 1, "workspace": "1GB", "tf32": False, "sparse_weights": True, "tiling": "fast"}
    most |= {"max_aux_streams": 0, "profiling_verbosity": "detailed", "refit": False}
    model = Small()
    modules = [compiled(model, (ids(),), tmp_path, settings={"tensorrt": one}) for one in (most, {"tf32": False})]
    assert len({str(one.report.partitions[0].key) for one in modules}) == 2
    assert all(one.report.partitions[0].outcome == "built" for one in modules)


def test_a_setting_that_the_flavour_lacks_is_refused() -> None:
    """TensorRT-RTX has no version-compatible plans, and aot_inductor none of TensorRT's settings."""
    with pytest.raises(SettingsError, match=r"settings\.tensorrt\['version_compatible'\]: TensorRT-RTX"):
        trtcache.key(Small(), (ids(),), backend="tensorrt_rtx", settings={"tensorrt": {"version_compatible": True}})
    with pytest.raises(SettingsError, match="'aot_inductor' has no such settings"):
        trtcache.key(Small(), (ids(),), settings={"tensorrt": {"tf32": False}})


class Counter(nn.Module):
    """Calls change a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x * self.seen


def test_a_model_that_keeps_state_between_calls_is_refused(tmp_path: Path) -> None:
    """A plan has no state, so the buffer is named instead of going wrong."""
    with pytest.raises(BuildError, match="calls change seen"):
        compiled(Counter(), (torch.ones(3),), tmp_path)

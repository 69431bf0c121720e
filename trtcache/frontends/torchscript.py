"""TorchScript modules and files as exported programs."""

from __future__ import annotations

import re
import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError, SettingsError, did_you_mean
from trtcache.frontends.exported import ExportedSource, device_type_of
from trtcache.frontends.source import Source
from trtcache.frontends.torch_archive import capture_logged_error
from trtcache.lowering import export_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from trtcache.frontends.source import CompileOptions

_HERE = "<--- HERE"
_REASON = re.compile(r"[\w.]+: +\S")
# The last is a number that is known only in a call where the interpreter takes one: "ivalue.h":663, expected int.
_VALUES = ("DataDependent", "GuardOnDataDependent", "core/ivalue.h")
_LOOP = "prim::Loop: it loops by values of tensors; write it with a fixed number of steps"
_ADVICE = {
    "if": "prim::If: it chooses by values of tensors; compile the branch that is needed, or use torch.where",
    "for": _LOOP,
    "while": _LOOP,
}
_OF_VALUES = "it needs values of tensors, known only in a call; leave it out, or give the part without it"
_NOT_THESE = "it does not take these example inputs"
_OTHERWISE = "give the torch.nn.Module that it was created from"


@frozen_dataclass
class Example:
    """A description of an argument: a tensor of this shape and dtype, or a number, given as the only size."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def example_arguments(model: torch.jit.ScriptModule, examples: Mapping[str, Example]) -> tuple[Any, ...]:
    """Create example arguments for a module from descriptions by name; tensors are zeros.

    Raises:
        SettingsError: an argument without default is missing, a name is unknown, or a type is not supported.
    """
    forward: Any = model.forward
    arguments = {argument.name: argument for argument in forward.schema.arguments[1:]}
    for name in examples:
        if name not in arguments:
            raise SettingsError(f"argument {name}", did_you_mean(name, list(arguments)))
    numbers: dict[str, type] = {"IntType": int, "FloatType": float, "BoolType": bool}
    values: list[Any] = []
    for name, argument in arguments.items():
        given, kind, where = examples.get(name), argument.type.kind(), f"argument {name}"
        if given is None:
            if not argument.has_default_value():
                raise SettingsError(where, f"a TorchScript file has no sizes; say {name}=SIZES")
            values.append(argument.default_value)
        elif kind == "TensorType":
            dtype = getattr(torch, given.dtype, None)
            if not isinstance(dtype, torch.dtype):
                raise SettingsError(where, f"{given.dtype!r} is not a dtype, such as float32 or int64")
            values.append(torch.zeros(given.shape, dtype=dtype))
        elif kind in numbers and len(given.shape) == 1:
            values.append(numbers[kind](given.shape[0]))
        else:
            expected = "one number" if kind in numbers else "passed in Python: trtcache.compile(...)"
            raise SettingsError(where, f"it is of type {argument.type}, and has to be {expected}")
    return tuple(values)


def load_script(path: Path) -> torch.jit.ScriptModule:
    """Load a TorchScript file on the CPU.

    Raises:
        ExportError: torch cannot read the file.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            module: torch.jit.ScriptModule = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ExportError(path.name, f"torch cannot read this TorchScript file: {_line(error)}") from error
    return module


class ScriptSource(Source):
    """A TorchScript module with example inputs. It is converted to an exported program of their sizes."""

    kind: ClassVar[str] = "torchscript"

    def __init__(
        self,
        model: torch.jit.ScriptModule,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        dynamic_shapes: object,
        *,
        name: str | None = None,
    ) -> None:
        """Create the source of a scripted or traced module; by default it is named like its class."""
        self.model, self.name = model, name or model.original_name
        self._script, self._examples = model, (tuple(args), dict(kwargs or {}), dynamic_shapes)

    @property
    def device(self) -> torch.device:
        """The device of the program.

        Raises:
            ValueError: always: it is unknown until the module is converted.
        """
        raise ValueError("it is TorchScript, and not converted yet")

    @property
    def device_type(self) -> str:
        """``cuda`` if a weight or an example input is on a GPU."""
        return device_type_of([*self._script.state_dict().values(), *pytree.tree_leaves(self._examples[:2])])

    def fingerprint(self) -> None:
        """Return None: the program is unknown until the module is converted."""

    def weights(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """Return weights by name."""
        state = self._script.state_dict()
        return {name: state[name] for name in names}

    def export(self, options: CompileOptions) -> ExportedSource:
        """Convert the module to an exported program."""
        del options
        start = time.perf_counter()
        program = self.program()
        export_s = time.perf_counter() - start
        return ExportedSource(program, self.name, export_s=export_s, device_type=self.device_type)

    def program(self) -> torch.export.ExportedProgram:
        """Convert the module to an exported program."""
        return convert_script(self._script, *self._examples)


def convert_script(
    model: torch.jit.ScriptModule, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, dynamic_shapes: object
) -> torch.export.ExportedProgram:
    """Convert a module to an exported program for the sizes of these example inputs, with the module's own weights.

    Branches and loops are decided by the numbers, flags and sizes of these inputs, and by attributes of the module.

    Raises:
        SettingsError: ``dynamic_shapes`` were passed, which TorchScript's interpreter does not support, or the
            arguments do not match the module's signature.
        ExportError: it needs values of tensors, or changes an attribute to something else; the message has the source
            line and advice.
    """
    from trtcache.frontends.torchscript_module import (  # a third of a second, and few models are TorchScript
        Script,
        Scripted,
    )
    from trtcache.lowering.capture import export

    name = model.original_name
    if dynamic_shapes:
        raise SettingsError(
            "dynamic_shapes", f"{name} is TorchScript, compiled for its examples' sizes; export the torch.nn.Module"
        )
    if not args and not kwargs:
        raise SettingsError("args", f"{name} is TorchScript, whose file has no example inputs; give some")
    given = tuple(args), dict(kwargs or {})
    with export_lock(), torch.no_grad(), capture_logged_error("torch._subclasses.fake_tensor"):
        script = Script(model)
        try:
            script.run_without_values(*given)
        except TypeError as error:
            raise SettingsError("args", f"{name}: {error}") from error
        except (RuntimeError, torch.jit.Error) as error:
            raise ExportError(name, _explain(error)) from error
        program = export(Scripted(script), *given, None)
    # Refuse a constant that shares memory with a weight, since a refit would not change it.
    weights = {tensor.untyped_storage().data_ptr(): weight for weight, tensor in program.state_dict.items()}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            where = program.constants[str(spec.target)].untyped_storage().data_ptr()
            if where and where in weights:
                raise ExportError(name, f"{weights[where]} is also used as a constant; give the torch.nn.Module")
    return program


def _explain(error: Exception) -> str:
    """Return the source line of an error of TorchScript's interpreter, its reason, and advice."""
    lines = str(error).splitlines() or [type(error).__name__]
    marks = [place for place, line in enumerate(lines) if line.rstrip().endswith(_HERE)]
    where = lines[marks[-1] - 1].strip() if marks else ""
    reasons = (line for line in lines[marks[-1] if marks else 0 :] if _REASON.match(line))
    why = next(reasons, _NOT_THESE)
    place = f'at "{where}"' if where else "in code without source"
    if any(mark in why for mark in _VALUES):
        advice = _ADVICE.get(where.split(" ", 1)[0], _OF_VALUES)
        return f"{place}: {advice}"
    if error.__cause__ is not None and why == _NOT_THESE:
        cause = _line(error.__cause__).rstrip(".")
        return f"{place}: {why}: {cause}; give inputs of the sizes and dtypes that it takes"
    if isinstance(error, torch.jit.Error):
        return f"{place}: it raises {why.removeprefix('builtins.')} for these example inputs; give inputs that it takes"
    return f"{place}: {why}: {_OTHERWISE}"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

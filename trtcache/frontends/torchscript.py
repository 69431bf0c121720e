"""TorchScript modules and files as exported programs.

torch's own converter (``TS2EPConverter``, torch 2.13) converts each ``prim::If`` to a ``cond``, even if it only
depends on sizes, and refuses a ``prim::SetAttr`` in one. TorchScript's interpreter decides branches and loops by
numbers, flags and sizes, and sends each operator through the dispatcher, where a tracer sees it.

It does not dispatch a few operators of its own that access a tensor's memory. A fake tensor has none: ``aten::tensor``
of one crashed the process (torch 2.13). So the graph of ``forward`` is rewritten before.
"""

from __future__ import annotations

import copy
import inspect
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import ExportError, SettingsError, did_you_mean
from trtcache.frontends.exported import ExportedSource, device_type_of
from trtcache.frontends.source import CompileOptions, Source
from trtcache.frontends.weight_files import capture_logged_error, register_tensor
from trtcache.lowering import export_lock

_GET, _SET = "prim::GetAttr", "prim::SetAttr"
_UNSEEN = "prim::data"
"""An operator that tracers do not see. Without gradients it is the identity."""

_MADE = frozenset({"aten::tensor", "aten::as_tensor"})
_TEXTS = frozenset({"aten::format", "aten::percentFormat", "aten::str"})
_MESSAGES = frozenset({"prim::RaiseException", "aten::warn"})
"""Operators that take a text and do not return it."""

_NUMBER = "prim::NumToTensor"
_READ = "prim::tolist"
_PRINTED = "prim::Print"
_DTYPES = {"IntType": torch.int64, "FloatType": None, "BoolType": torch.bool}
"""The dtypes that ``aten::tensor`` gives numbers; None is torch's default dtype."""

_GIVE = "give the torch.nn.Module that it was created from"


def _forward(module: torch.jit.ScriptModule) -> Any:
    """Return a module's ``forward``.

    Raises:
        ExportError: it has none, or hooks beside it.
    """
    forward = getattr(module, "forward", None)
    if forward is None:  # torch.jit.script(nn.LSTM(...)) has several methods instead
        raise ExportError(module.original_name, f"it has no method forward; {_GIVE}")
    if module._forward_hooks or module._forward_pre_hooks:  # forward does not call them; it calls those of submodules
        raise ExportError(module.original_name, f"it has forward hooks, which are not part of its graph; {_GIVE}")
    return forward


def graph_of(module: torch.jit.ScriptModule) -> Any:
    """Return the graph of a module's ``forward`` with all calls inlined; the module is not changed.

    Raises:
        ExportError: it has no ``forward``, or has hooks, or reads or creates tensors with operators that tracers do
            not see.
    """
    forward = _forward(module)
    graph = forward.inlined_graph
    torch._C._jit_pass_inline_fork_wait(graph)
    torch._C._jit_pass_constant_propagation(graph)
    for node in list(_nodes(graph)):
        kind = node.kind()
        if kind == _NUMBER:
            # Traced modules compute sizes with tensors: keep the value of one that is created from a size. torch's
            # tracers recognize a constant by aten::lift_fresh.
            lifted = graph.create("aten::lift_fresh", [node.output()], 1)
            lifted.insertAfter(node)
            node.output().replaceAllUsesWith(lifted.output())
            lifted.replaceInput(0, node.output())
        elif kind == _UNSEEN:
            node.output().replaceAllUsesWith(node.inputsAt(0))
        elif kind == _PRINTED:
            node.destroy()
        elif kind == _READ:
            raise ExportError(module.original_name, f"{_READ} needs values of tensors, known only in a call; {_GIVE}")
        elif kind in _TEXTS:
            _mask_tensors(graph, node, module.original_name)
        elif kind in _MADE and not _is_tensor(node.inputsAt(0)):
            _make_of_numbers(graph, node, module.original_name)
    torch._C._jit_pass_dce(graph)
    return graph


def attributes(graph: Any, label: str, parts: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the qualified names of the attributes that a graph reads, and of those that it changes.

    Raises:
        ExportError: it changes an attribute of an object that is not part of the module.
    """
    modules = {next(graph.inputs()).debugName(): ""}
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    for node in _nodes(graph):
        if node.kind() not in {_GET, _SET}:
            continue
        within, last = modules.get(node.inputsAt(0).debugName()), node.s("name")
        name = f"{within}.{last}" if within else last
        if node.kind() == _SET:
            if within is None:
                raise ExportError(label, f"{_SET} changes {last} of an object that is not in the module; {_GIVE}")
            changed[name] = None
        elif within is not None and name in parts:
            modules[node.output().debugName()] = name
        elif within is not None:
            read[name] = None
    return list(read), list(changed)


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _mask_tensors(graph: Any, node: Any, label: str) -> None:
    """Put a placeholder into a message in place of tensors, whose values are not known.

    Raises:
        ExportError: the text is not only a message.
    """
    formatted = [place for place, value in enumerate(node.inputs()) if _is_tensor(value)]
    if formatted and not _is_message(node):
        raise ExportError(label, f"{node.kind()} formats values of tensors, known only in a call; {_GIVE}")
    graph.setInsertPoint(node)
    for place in formatted:
        node.replaceInput(place, graph.insertConstant("<tensor>"))


def _is_message(node: Any) -> bool:
    """Return whether a text is only printed, or becomes a part of the message of an error or a warning."""
    for user in (use.user for use in node.output().uses()):
        makes_text = user.kind() in {*_TEXTS, "aten::add"}  # a sum of texts joins them
        if user.kind() not in {_PRINTED, *_MESSAGES} and not (makes_text and _is_message(user)):
            return False
    return True


def _is_tensor(value: Any) -> bool:
    return bool(value.type().isSubtypeOf(torch._C.TensorType.get()))


def _make_of_numbers(graph: Any, node: Any, label: str) -> None:
    """Create a tensor from a number or a list of numbers with operators that tracers see.

    Raises:
        ExportError: the tensor is created from something else.
    """
    value, dtype, device = node.inputsAt(0), node.inputsAt(1), node.inputsAt(2)
    graph.setInsertPoint(node)
    numbers = _literal_numbers(graph, value)
    if value.type().kind() in _DTYPES:
        tensor = _scalar(graph, value, dtype, device)
    elif numbers:
        scalars = [_scalar(graph, number, dtype, device) for number in numbers]
        items = graph.insertNode(graph.create("prim::ListConstruct", scalars, 1)).output()
        items.setType(torch._C.ListType.ofTensors())
        tensor = graph.insertNode(graph.create("aten::stack", [items, graph.insertConstant(0)], 1)).output()
    else:
        where = str(node.sourceRange()).partition("\n")[0]
        raise ExportError(label, f"{node.kind()} creates a tensor from a list built in the call ({where}); {_GIVE}")
    node.output().replaceAllUsesWith(tensor)
    node.destroy()


def _literal_numbers(graph: Any, value: Any) -> list[Any]:
    """Return the numbers of a literal list that nothing can change; none for any other value."""
    literal, kind = value.node(), value.type()
    if kind.kind() != "ListType" or kind.getElementType().kind() not in _DTYPES:
        return []
    if literal.kind() == "prim::Constant":
        return [graph.insertConstant(number) for number in value.toIValue()]
    return list(literal.inputs()) if literal.kind() == "prim::ListConstruct" and len(value.uses()) == 1 else []


def _scalar(graph: Any, value: Any, dtype: Any, device: Any) -> Any:
    none = graph.insertConstant(None)
    if dtype.type().kind() == "NoneType":
        dtype = graph.insertConstant(_DTYPES[value.type().kind()])
    if value.type().kind() == "BoolType":  # TorchScript does not convert it implicitly
        value = graph.insertNode(graph.create("aten::Int", [value], 1)).output()
        value.setType(torch._C.IntType.get())
    return graph.insertNode(graph.create("aten::scalar_tensor", [value, dtype, none, device, none], 1)).output()


class Script:
    """The graph of a TorchScript module, which can be run with other tensors than its own.

    Attributes:
        name: the name of the module's class.
        parameters, buffers: its weights by name.
        tensors: the tensors in its other attributes, by name.
        parts: whether each submodule is in train mode, by name; the module itself has the name "".
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        """Rewrite the graph of the module's ``forward``; the module is not changed."""
        self.name: str = module.original_name
        self._module = module._c
        self._graph = graph_of(module)
        self._signature = _signature(module)
        self._types = [argument.type for argument in _forward(module).schema.arguments[1:]]
        self.parameters = dict(module.named_parameters(remove_duplicate=False))
        self.buffers = dict(module.named_buffers(remove_duplicate=False))
        self.parts = {name: bool(getattr(part, "training", False)) for name, part in module.named_modules()}
        names = [name for name, _ in module.named_modules(remove_duplicate=False)]
        read, self._changed = attributes(self._graph, self.name, names)
        own = {name: _get(self._module, name) for name in (*read, *self._changed)}
        weights = {**self.parameters, **self.buffers}
        self.tensors = {
            name: value for name, value in own.items() if isinstance(value, torch.Tensor) and name not in weights
        }
        self._nested = {name: value for name, value in own.items() if isinstance(value, (list, tuple, dict))}

    def __deepcopy__(self, memo: object) -> Script:
        """Return the script itself, which does not change."""
        return self

    @property
    def unregistered(self) -> dict[str, Any]:
        """What the graph reads besides weights: tensors and containers of tensors in attributes, and its constants."""
        values = [node.output().toIValue() for node in _nodes(self._graph) if node.kind() == "prim::Constant"]
        constants = [one for one in values if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(one))]
        return {**self.tensors, **self._nested, "(constants)": constants}

    def run(
        self,
        live: Mapping[str, torch.Tensor],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        modes: Mapping[str, bool] | None = None,
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        """Run the graph with other weights and tensors; return its outputs, and the tensors that replace attributes.

        Args:
            live: the weights and tensors.
            args: positional arguments of the call; they are converted to the types of the signature.
            kwargs: its keyword arguments; so are these.
            modes: whether to run submodules in train mode, by name; by default as they were.
        """
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = [_convert(value, kind) for value, kind in zip(given.arguments.values(), self._types, strict=True)]
        instance = _copy_value(self._module, {})
        for name, is_training in (modes or self.parts).items():
            owner, last = _owner(instance, f"{name}.training" if name else "training")
            if owner.hasattr(last):  # a frozen module has none
                owner.setattr(last, is_training)
        for name, tensor in live.items():
            _set(instance, name, tensor)
        own = {_identity(_get(self._module, name)): tensor for name, tensor in live.items()}
        nested = pytree.tree_map_only(torch.Tensor, lambda tensor: own.get(_identity(tensor), tensor), self._nested)
        for name, value in nested.items():
            _set(instance, name, value)
        module = torch.jit._recursive.wrap_cpp_module(instance)  # type: ignore[no-untyped-call]
        inputs = (module, *values)
        outputs = torch._C._jit_interpret_graph(self._graph, inputs)  # type: ignore[attr-defined]
        self._refuse_changes(nested, {name: _get(instance, name) for name in nested})
        after = {name: _get(instance, name) for name in self._changed}
        return outputs, {name: value for name, value in after.items() if self._is_new(name, value, live)}

    def _refuse_changes(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Refuse a call that changes a list or dictionary of the module.

        Raises:
            ExportError: one has other tensors or numbers now.
        """

        def is_same(old: object, new: object) -> bool:
            return old is new or (type(old) is type(new) and not isinstance(old, torch.Tensor) and old == new)

        for name, value in before.items():
            (old, form), (new, other) = pytree.tree_flatten(value), pytree.tree_flatten(after[name])
            if form != other or not all(map(is_same, old, new)):
                why = f"the attribute {name} is a {type(value).__name__} that a call changes"
                raise ExportError(self.name, f"{why}: make it an argument and a result")

    def run_without_values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Run with fake tensors, to get an error with the source line, which torch.export's error lacks."""
        with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
            given = ({**self.parameters, **self.buffers, **self.tensors}, args, dict(kwargs))
            fakes = pytree.tree_map_only(
                torch.Tensor, lambda tensor: mode.from_tensor(tensor, static_shapes=True), given
            )
            self.run(*fakes)

    def _is_new(self, name: str, after: object, live: Mapping[str, torch.Tensor]) -> bool:
        """Return whether an attribute has another tensor after a call.

        Raises:
            ExportError: it has another kind of value, or a tensor of another shape.
        """
        before = live.get(name, _get(self._module, name))
        if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
            if (before.shape, before.dtype) == (after.shape, after.dtype):
                return after is not before
        elif (
            type(before) is type(after)
            and not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(before))  # not compared with ==
            and before == after
        ):
            return False
        change = f"{_SET} changes the attribute {name} from {_short(before)} to {_short(after)}"
        advice = "if only a first call does that, call the module before; else make it an argument and a result"
        raise ExportError(self.name, f"{change}: {advice}")


class Scripted(torch.nn.Module):
    """A ``torch.nn.Module`` that runs a TorchScript module's graph, with the same weights under the same names.

    Tensors in other attributes of the TorchScript module are buffers here. It has submodules of the same names, whose
    modes (train or eval) apply to a call.
    """

    def __init__(self, script: Script) -> None:
        """Register the weights and other tensors."""
        super().__init__()
        self._trtcache_script = script
        for name, is_training in script.parts.items():
            part: torch.nn.Module = self
            for step in name.split(".") if name else ():
                if step not in part._modules:
                    part.add_module(step, torch.nn.Module())
                part = part.get_submodule(step)
            part.training = is_training
        for name, weight in script.parameters.items():
            register_tensor(self, name, torch.nn.Parameter(weight.detach(), requires_grad=False), persistent=True)
        for name, buffer in script.buffers.items():
            register_tensor(self, name, buffer, persistent=True)
        for name, tensor in script.tensors.items():
            register_tensor(self, name, tensor, persistent=False)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All parameters and buffers by name; those of the tracer during tracing."""
        return {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph, and update the attributes that the module would set."""
        live, script = self.tensors, self._trtcache_script
        modes = {name: self.get_submodule(name).training for name in script.parts}
        outputs, updates = script.run(live, args, kwargs, modes)
        if updates:  # what has the memory of a former value, such as the former value itself, keeps its contents
            memories = {live[name].untyped_storage()._cdata for name in updates}
            outputs, updates = pytree.tree_map_only(
                torch.Tensor,
                lambda tensor: tensor.clone() if tensor.untyped_storage()._cdata in memories else tensor,
                (outputs, updates),
            )
        for name, tensor in updates.items():
            live[name].copy_(tensor)
        return outputs


def _convert(value: Any, kind: Any) -> Any:
    """Convert an argument to its type in the signature, as a call of a TorchScript module does.

    What is neither a plain number nor a device is left as it is, in containers, too.
    """
    name = kind.kind()
    if name in _NUMBERS:
        convert, taken = _NUMBERS[name]
        return convert(value) if type(value) in taken else value
    if name == "DeviceObjType" and isinstance(value, str):
        return torch.device(value)
    if name == "OptionalType" and value is not None:
        return _convert(value, kind.getElementType())
    if name == "ListType" and isinstance(value, (list, tuple)):
        return [_convert(item, kind.getElementType()) for item in value]
    if name == "DictType" and isinstance(value, dict):
        keys, values = kind.getKeyType(), kind.getValueType()
        return {_convert(key, keys): _convert(item, values) for key, item in value.items()}
    if name == "TupleType" and isinstance(value, tuple) and len(value) == len(kind.elements()):
        items = list(map(_convert, value, kind.elements()))
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


_NUMBERS: Mapping[str, tuple[Callable[[Any], Any], frozenset[type]]] = {
    "FloatType": (float, frozenset({int, bool})),
    "ComplexType": (complex, frozenset({int, bool, float})),
    "IntType": (int, frozenset({bool})),
    "BoolType": (bool, frozenset({int})),
}
"""How a call converts a number to a type, and from which other types."""


def _signature(module: torch.jit.ScriptModule) -> inspect.Signature:
    forward: Any = module.forward
    parameters = []
    for argument in forward.schema.arguments[1:]:
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        parameters.append(inspect.Parameter(argument.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)


def _copy_value(module: Any, copies: dict[Any, Any]) -> Any:
    """Return a copy of a module and of its submodules, with the same tensors; a submodule of two names is copied once.

    Args:
        module: the module.
        copies: the copies of the submodules that were copied before.
    """
    if module not in copies:
        copies[module] = copied = copy.copy(module)
        for name, part in torch._C.ModuleDict(module).items():
            copied.setattr(name, _copy_value(part, copies))
    return copies[module]


def _owner(module: Any, name: str) -> tuple[Any, str]:
    *path, last = name.split(".")
    for part in path:
        module = module.getattr(part)
    return module, last


def _get(module: Any, name: str) -> Any:
    owner, last = _owner(module, name)
    return owner.getattr(last)


def _set(module: Any, name: str, value: object) -> None:
    owner, last = _owner(module, name)
    owner.setattr(last, value)


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _short(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}"
    return repr(value)[:40]


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

    fingerprint_name: ClassVar[str] = "torchscript"

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
    from trtcache.lowering.capture import export

    name = model.original_name
    if dynamic_shapes:
        raise SettingsError(
            "dynamic_shapes", f"{name} is TorchScript, compiled for its examples' sizes; export the torch.nn.Module"
        )
    if not args and not kwargs:
        raise SettingsError("args", f"{name} is TorchScript, whose file has no example inputs; give some")
    if torch._C._is_any_autocast_enabled():  # whose rules are not those of torch.autocast: softmax stays in float32
        setting = "compile it without, with settings={'autocast': 'bf16'}"
        raise ExportError(
            name, f"TorchScript has an autocast of its own, which is not applied here; {setting}, or {_GIVE}"
        )
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
    return f"{place}: {why}: {_GIVE}"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

"""TorchScript modules wrapped for ``torch.export``: the graph is interpreted, not translated.

torch's own converter (``TS2EPConverter``, torch 2.13) converts each ``prim::If`` to a ``cond``, even if it only depends
on sizes, and refuses a ``prim::SetAttr`` in one. TorchScript's interpreter decides branches and loops by numbers, flags
and sizes, and sends each operator through the dispatcher, where a tracer sees it.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from trtcache.errors import ExportError
from trtcache.frontends.torchscript.graph import attributes, graph_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_SET = "prim::SetAttr"


class Script:
    """The graph of a TorchScript module, which can be run with other tensors than its own.

    Attributes:
        name: the name of the module's class.
        parameters, buffers: its weights by name.
        tensors: the tensors in its other attributes, by name.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        """Rewrite the graph of the module's ``forward``; the module is not changed."""
        self.name: str = module.original_name
        self._module = module._c
        self._graph = graph_of(module)
        self._signature = _signature(module)
        self.parameters = dict(module.named_parameters(remove_duplicate=False))
        self.buffers = dict(module.named_buffers(remove_duplicate=False))
        parts = [name for name, _ in module.named_modules(remove_duplicate=False)]
        read, self._changed = attributes(self._graph, self.name, parts)
        own = {name: _get(self._module, name) for name in (*read, *self._changed)}
        weights = {**self.parameters, **self.buffers}
        self.tensors = {
            name: value for name, value in own.items() if isinstance(value, torch.Tensor) and name not in weights
        }
        self._nested = {name: value for name, value in own.items() if isinstance(value, (list, tuple, dict))}

    def run(
        self, live: Mapping[str, torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        """Run the graph with other weights and tensors; return its outputs, and the tensors that replace attributes."""
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        instance = _copy_value(self._module)
        for name, tensor in live.items():
            _set(instance, name, tensor)
        own = {_identity(_get(self._module, name)): tensor for name, tensor in live.items()}
        nested = pytree.tree_map_only(torch.Tensor, lambda tensor: own.get(_identity(tensor), tensor), self._nested)
        for name, value in nested.items():
            _set(instance, name, value)
        module = torch.jit._recursive.wrap_cpp_module(instance)  # type: ignore[no-untyped-call]
        inputs = (module, *given.arguments.values())
        outputs = torch._C._jit_interpret_graph(self._graph, inputs)  # type: ignore[attr-defined]
        self._refuse_changes(nested, {name: _get(instance, name) for name in nested})
        after = {name: _get(instance, name) for name in self._changed}
        return outputs, {name: value for name, value in after.items() if self._is_new(name, value, live)}

    def _refuse_changes(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Refuse a call that changes a list or dictionary of the module.

        Raises:
            ExportError: one has other tensors or numbers now.
        """
        for name, value in before.items():
            (old, form), (new, other) = pytree.tree_flatten(value), pytree.tree_flatten(after[name])
            if form != other or not all(map(_is_same, old, new)):
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
        elif type(before) is type(after) and not _has_tensors(before) and before == after:
            return False
        change = f"{_SET} changes the attribute {name} from {_short(before)} to {_short(after)}"
        advice = "if only a first call does that, call the module before; else make it an argument and a result"
        raise ExportError(self.name, f"{change}: {advice}")


class Scripted(torch.nn.Module):
    """A ``torch.nn.Module`` that runs a TorchScript module's graph, with the same weights under the same names.

    Tensors in other attributes of the TorchScript module are buffers here.
    """

    def __init__(self, script: Script) -> None:
        """Register the weights and other tensors."""
        super().__init__()
        self._trtcache_script = script
        for name, weight in script.parameters.items():
            self._keep(name, torch.nn.Parameter(weight.detach(), requires_grad=False))
        for name, buffer in script.buffers.items():
            self._keep(name, buffer)
        for name, tensor in script.tensors.items():
            self._keep(name, tensor, persistent=False)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All parameters and buffers by name; those of the tracer during tracing."""
        return {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph, and update the attributes that the module would set."""
        live = self.tensors
        outputs, updates = self._trtcache_script.run(live, args, kwargs)
        if len(updates) > 1:  # one may be the former value of another
            updates = {name: tensor.clone() for name, tensor in updates.items()}
        for name, tensor in updates.items():
            live[name].copy_(tensor)
        return outputs

    def _keep(self, name: str, tensor: torch.Tensor, *, persistent: bool = True) -> None:
        module: torch.nn.Module = self
        *path, last = name.split(".")
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(last, tensor)
        else:
            module.register_buffer(last, tensor, persistent=persistent)


def _signature(module: torch.jit.ScriptModule) -> inspect.Signature:
    forward: Any = module.forward
    parameters = []
    for argument in forward.schema.arguments[1:]:
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        parameters.append(inspect.Parameter(argument.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)


def _copy_value(module: Any) -> Any:
    """Return a copy of a module and of its submodules, with the same tensors."""
    copied = copy.copy(module)
    for name, part in torch._C.ModuleDict(module).items():
        copied.setattr(name, _copy_value(part))
    return copied


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


def _is_same(old: object, new: object) -> bool:
    return old is new or (type(old) is type(new) and not isinstance(old, torch.Tensor) and old == new)


def _has_tensors(value: object) -> bool:
    return not isinstance(value, torch.Tensor) and any(
        isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)
    )


def _short(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}"
    return repr(value)[:40]

"""The weights of a compiled module by the model's names, as ``torch.nn.Module`` presents them: parameters and buffers.

They are for reading. An engine may have copies, or weights computed from several (a convolution with its BatchNorm
folded in), so an exchanged parameter would not reach it: only a refit replaces weights. ``CompiledModule`` refits where
torch says what the new weights are (``load_state_dict``, ``_apply``), and every other exchange is an error.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import torch
from torch import nn

from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import RefitError
from trtcache.weights.slots import EngineWeights, dtype_name, is_fake

if TYPE_CHECKING:
    from trtcache.lowering.interface import Interface

Kind = Literal["parameter", "buffer", "transient"]
"""What a weight is in the model; ``transient`` is a buffer that is not in its state_dict."""


@frozen_dataclass
class ModelNames:
    """The model's names for its weights.

    Attributes:
        kinds: the kind of each weight by name, in the model's order.
        unused: weights of the model that its program does not use.
    """

    kinds: Mapping[str, Kind]
    unused: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: nn.Module, used: Collection[str]) -> ModelNames:
        """Return the names in a model, whose program uses the weights with the names ``used``."""
        kinds: dict[str, Kind] = {}
        unused: dict[str, torch.Tensor] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            prefix = prefix_of(path)
            hidden = getattr(module, "_non_persistent_buffers_set", ())  # a TorchScript module has none
            named: list[tuple[str, Kind, torch.Tensor | None]] = []
            named += ((name, "parameter", one) for name, one in module._parameters.items())
            named += ((name, "transient" if name in hidden else "buffer", one) for name, one in module._buffers.items())
            for name, kind, tensor in named:
                full = prefix + name
                # A non-persistent buffer is a weight only if calls modify it, else it is a constant of the program.
                if tensor is None or (kind == "transient" and full not in used):
                    continue
                kinds[full] = kind
                if full not in used:
                    unused[full] = tensor.detach()
        return cls(kinds, unused)

    @classmethod
    def guess(cls, interface: Interface, parameters: frozenset[str]) -> ModelNames:
        """Return the names in a program, which may not say which of its weights are parameters."""
        kinds: dict[str, Kind] = {}
        for slot in sorted(interface.slots, key=lambda slot: slot.names):
            is_parameter = not slot.mutated and getattr(torch, slot.dtype).is_floating_point
            for name in slot.names:
                is_named = name in parameters if parameters else is_parameter
                kinds[name] = "transient" if slot.transient else "parameter" if is_named else "buffer"
        return cls(kinds, {})


def prefix_of(path: str) -> str:
    """Return how the names of the weights of a submodule begin; the path of the model itself is empty."""
    return f"{path}." if path else ""


def part_of(state: Mapping[str, torch.Tensor], path: str) -> dict[str, torch.Tensor]:
    """Return the weights of a submodule from a model's, by its own names."""
    prefix = prefix_of(path)
    return {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}


def tensors_by_name(
    interface: Interface, weights: EngineWeights, before: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Return the weights that an engine uses by the model's names.

    A weight that the engine has as it is, is the engine's own tensor. One that only recipes use is the model's.

    Args:
        interface: the engine's interface.
        weights: the engine's weights.
        before: tensors for names that neither the engine nor the weights' sources have.
    """
    found = dict(before or {})
    for index, tensor in weights.source_weights.items():
        found.update(dict.fromkeys(interface.slots[index].names, tensor))
    for weight in interface.weights:
        if weight.slot is not None and weight.name in weights:
            found.update(dict.fromkeys(weight.slot.names, weights[weight.name].detach()))
    return found


class WeightGroup(nn.Module):
    """The weights of a submodule of a compiled module. The submodule itself is part of the engine and cannot run."""

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Register a hook, which will not be called, with a warning."""
        return self._warn_of(super().register_forward_hook(*args, **kwargs))

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        """Register a hook, which will not be called, with a warning."""
        return self._warn_of(super().register_forward_pre_hook(*args, **kwargs))

    @staticmethod
    def _warn_of(handle: Any) -> Any:
        why = "a submodule of a compiled module is part of its engine: its hooks are not called"
        warnings.warn(f"{why}; compile the model with them", UserWarning, stacklevel=3)
        return handle

    def forward(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse the call.

        Raises:
            TypeError: always.
        """
        raise TypeError("a submodule of a compiled module is part of its engine: call the compiled module")

    def load_state_dict(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse new weights for a part.

        Raises:
            TypeError: always.
        """
        raise TypeError("a submodule of a compiled module takes no weights: refit the compiled module")

    def _load_from_state_dict(self, *_args: Any) -> None:
        """Do nothing: the compiled module has taken the weights of all of its submodules."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> WeightGroup:  # noqa: ARG002
        if changed_by(fn, dict(self.state_dict(keep_vars=True))):
            raise RefitError(mismatched=("a submodule of a compiled module: convert the model and compile it again",))
        return self


class Owner(Protocol):
    """A compiled module whose weights are handed out."""

    def lend(self) -> None:
        """Note that weights are handed out, which the next refit then MUST NOT overwrite."""
        ...


class _Fixed(dict[str, Any]):
    """A dictionary whose items derived classes check in ``__setitem__``, and which cannot lose any."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set items."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return an item, or set it."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]  # narrower than that of dict
        """Set items."""
        self.update(other)
        return self

    def __delitem__(self, name: str) -> NoReturn:
        """Refuse to drop an item.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{name}: a weight of a compiled module cannot be deleted, since its engine uses it")

    def pop(self, name: str, *_default: Any) -> NoReturn:
        """Refuse to drop an item."""
        del self[name]

    def popitem(self) -> NoReturn:
        """Refuse to drop an item."""
        del self[next(iter(self), "")]

    def clear(self) -> None:
        """Refuse to drop all items; do nothing if there are none."""
        for name in self:
            del self[name]


class FixedModules(_Fixed):
    """The ``_modules`` of a compiled module: another module is an error, since the engine would know nothing of it."""

    def __setitem__(self, name: str, module: Any) -> None:
        """Refuse another module.

        Raises:
            TypeError: it would not be part of the engine.
        """
        if module is not self.get(name):
            what = "a submodule of a compiled module cannot be replaced"
            what = what if name in self else "a compiled module takes no further parameters or submodules"
            raise TypeError(f"{name}: {what}; refit changes weights")


class FixedTensors(_Fixed):
    """The ``_parameters`` or ``_buffers`` of a compiled module: another tensor is an error.

    The engine would not see it. While tracers record a call, they put fake tensors there.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], owner: weakref.ref[Owner]) -> None:
        """Store the tensors, and the module to notify before they are handed out."""
        super().__init__(tensors)
        self._own = dict(tensors)
        self._owner = owner

    def _lend(self) -> None:
        if (owner := self._owner()) is not None:
            owner.lend()

    def __getitem__(self, name: str) -> Any:
        """Return a tensor."""
        self._lend()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor."""
        self._lend()
        return super().get(name, default)

    def items(self) -> Any:
        """Return the names and tensors."""
        self._lend()
        return super().items()

    def values(self) -> Any:
        """Return the tensors."""
        self._lend()
        return super().values()

    def __setitem__(self, name: str, tensor: Any) -> None:
        """Refuse another tensor.

        Raises:
            TypeError: it would not reach the engine.
        """
        is_symbolic = is_fake(tensor) or torch._is_functional_tensor(tensor) if torch.is_tensor(tensor) else False
        if tensor is not self._own.get(name) and not is_symbolic:
            raise TypeError(
                f"{name}: a parameter of a compiled module cannot be replaced, since the engine would not use the new "
                "one: refit the module"
            )
        super().__setitem__(name, tensor)


def publish(module: Owner, names: ModelNames, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set a module's parameters, buffers and submodules from tensors by name. Tied weights are one parameter."""
    shared: dict[tuple[int, bool], torch.Tensor] = {}
    root = _Branch()
    for name, kind in names.kinds.items():
        tensor = tensors.get(name)
        if tensor is None:
            continue
        is_parameter = kind == "parameter"
        place = (id(tensor), is_parameter)
        if place not in shared:
            shared[place] = nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
        *path, last = name.split(".")
        branch = root
        for part in path:
            branch = branch.children.setdefault(part, _Branch())
        branch.add(last, shared[place], kind)
    root.set_in(module, weakref.ref(module))


class _Branch:
    """Weights and submodules that are about to be set in a module."""

    def __init__(self) -> None:
        self.parameters: dict[str, torch.Tensor] = {}
        self.buffers: dict[str, torch.Tensor] = {}
        self.hidden: set[str] = set()
        self.children: dict[str, _Branch] = {}

    def add(self, name: str, tensor: torch.Tensor, kind: Kind) -> None:
        (self.parameters if kind == "parameter" else self.buffers)[name] = tensor
        if kind == "transient":
            self.hidden.add(name)

    def set_in(self, module: object, owner: weakref.ref[Owner]) -> None:
        groups: dict[str, nn.Module] = {}
        for name, branch in self.children.items():
            groups[name] = WeightGroup().eval()
            branch.set_in(groups[name], owner)
        module.__dict__["_parameters"] = FixedTensors(self.parameters, owner)
        module.__dict__["_buffers"] = FixedTensors(self.buffers, owner)
        module.__dict__["_non_persistent_buffers_set"] = self.hidden
        module.__dict__["_modules"] = FixedModules(groups)


def changed_by(
    convert: Callable[[torch.Tensor], torch.Tensor], tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return what a conversion such as that of ``Module.to`` makes of the weights that it changes.

    Raises:
        RefitError: it changes a dtype or a device, for which the engine was not built. No weight was converted.
    """
    first = {(one.dtype, one.device): name for name, one in reversed(list(tensors.items()))}
    for (dtype, device), name in first.items():
        probe = convert(torch.empty(0, dtype=dtype, device=device))
        if (probe.dtype, probe.device) != (dtype, device):
            had, given = (
                f"{dtype_name(kind)} on {place}" for kind, place in ((dtype, device), (probe.dtype, probe.device))
            )
            raise RefitError(
                mismatched=(f"{name} ({given}, the engine has {had}: convert the model, then compile it again)",)
            )
    changed = {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr()
        made = convert(tensor)
        if made is not tensor or made.data_ptr() != place:
            changed[name] = made.detach()
    return changed

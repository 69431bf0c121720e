"""The parts of a direct key: what a program depends on beside the operations of its model.

These are the arguments, the weights without their values, and torch's settings. Whatever else a program depends on, the
model's code and attributes above all, shows in the operations.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.frontends.direct.errors import NotComparableError
from trtcache.frontends.direct.export_context import require_exportable
from trtcache.frontends.direct.trace import NAMED, TENSORS, describe_structure, has_values, write_constant
from trtcache.keys.key import process_state
from trtcache.keys.torch_config import overrides
from trtcache.lowering.operators import refuse_replaced_kernels
from trtcache.weights.slots import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.digests import Json

_PLAIN = frozenset({int, bool, float, complex, str, bytes, type(None)})


def direct_key_parts(
    model: torch.nn.Module, weights: Mapping[str, torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Json]:
    """Return the parts of a direct key.

    Args:
        model: the model.
        weights: its parameters and buffers.
        args: example arguments.
        kwargs: example keyword arguments.

    Raises:
        NotComparableError: a part cannot be described, or an export fails.
        TypeError, ValueError: the arguments are not those of ``forward``.
    """
    _refuse_modes()
    require_exportable(model, args, kwargs)
    return {
        "forward": [*inspect.signature(model.forward).parameters],
        "arguments": _arguments(args, kwargs),
        "empty": _empty_buffers(model),
        "weights": _describe_weights(model, weights),
        "process": _process(),
    }


def _empty_buffers(model: torch.nn.Module) -> list[Json]:
    """Return the places of those of a model's own buffers that are None; torch.export counts them, but for the last."""
    are_empty = [buffer is None for buffer in model._buffers.values()]
    while are_empty and are_empty[-1]:
        are_empty.pop()
    return [place for place, is_empty in enumerate(are_empty) if is_empty]


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json:
    pairs, spec = pytree.tree_flatten_with_path((args, dict(kwargs)))  # as torch.export: it needs the paths
    leaves = [leaf for _, leaf in pairs]
    return [describe_structure(spec), *(_argument(place, leaf) for place, leaf in enumerate(leaves))]


def _argument(place: int, leaf: Any) -> Json:
    kind = type(leaf)
    if kind in TENSORS:
        if layout(tuple(leaf.shape), leaf.stride()) != leaf.stride():
            raise NotComparableError(f"argument {place} has gaps in its memory")
        return _tensor(f"argument {place}", leaf)
    if kind in _PLAIN:
        return [kind.__name__, repr(leaf)]
    if kind in NAMED:
        return ["torch", str(leaf)]
    raise NotComparableError(f"argument {place} is of class {kind.__qualname__}")


def _describe_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> Json:
    """Describe parameters and buffers, without their values unless a program has those as constants."""
    constants = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    storages: dict[int, int] = {}
    places: dict[int, int] = {}
    numbers: dict[int, int] = {}
    written: dict[str, Json] = {}
    for name, tensor in weights.items():
        properties = _tensor(f"weight {name}", tensor)
        storage = tensor.untyped_storage()
        shared: Json = [
            numbers.setdefault(id(tensor), len(numbers)),
            storages.setdefault(storage._cdata, len(storages)),
            places.setdefault(tensor.data_ptr(), len(places)),
        ]
        content = write_constant(tensor) if name in constants else ""
        written[name] = [*properties, int(tensor.storage_offset()), storage.nbytes(), shared, content]
    return written


def _tensor(what: str, tensor: torch.Tensor) -> list[Json]:
    """Describe the properties of a tensor that its fake tensor in an export has as well, but for a gradient.

    Raises:
        NotComparableError: it is of a derived class, sparse, without values, or marked for Dynamo.
    """
    if not has_values(tensor):
        raise NotComparableError(f"{what} is of class {type(tensor).__qualname__}, sparse, or without values")
    # torch.export treats the sizes of a marked tensor as the marks say. ``torch.compile`` sets one without sizes.
    # Other attributes are not those of the fake tensor that takes its place.
    if marks := [name for name, value in vars(tensor).items() if _is_mark(name, value)]:
        raise NotComparableError(f"{what} has marks for Dynamo ({', '.join(marks)})")
    base = None if tensor.is_inference() else tensor._base
    flags = [tensor.is_inference(), tensor.is_leaf, tensor.requires_grad, tensor.retains_grad]
    flags += [tensor.is_conj(), tensor.is_neg()]
    described: list[Json] = [type(tensor).__name__, *_layout(tensor), *map(int, flags)]
    return [*described, None if base is None else _layout(base)]


def _is_mark(name: str, value: Any) -> bool:
    """Return whether an attribute of a tensor marks sizes for Dynamo; an export leaves empty ones behind."""
    if name == "_specialize_on":
        return any(value.values())
    return name.startswith("_dynamo") and name != "_dynamo_static_input_type" and bool(value)


def _layout(tensor: torch.Tensor) -> list[Json]:
    return [str(tensor.dtype), str(tensor.device), [*map(int, tensor.shape)], [*map(int, tensor.stride())]]


def _process() -> Json:
    modules = sorted((name, one) for name, one in sys.modules.items() if type(one).__name__ == "ConfigModuleInstance")
    options: dict[str, Json] = {
        name: {option: repr(value) for option, value in sorted(overrides(one))} for name, one in modules
    }
    return {
        "torch": [str(torch.__version__), str(torch.version.git_version)],
        "python": sys.version,
        "state": repr(process_state()),
        "gradients": [int(torch.is_grad_enabled()), int(torch.is_inference_mode_enabled())],
        "options": {name: found for name, found in options.items() if found},
    }


def _refuse_modes() -> None:
    """Check that no mode, and no kernel of another file, changes what operators do.

    Raises:
        NotComparableError: there is one.
    """
    try:
        refuse_replaced_kernels()
    except ValueError as error:
        raise NotComparableError(str(error)) from None
    active = {
        "a dispatch mode": torch._C._len_torch_dispatch_stack() > 0,
        "a transform of functorch": torch._C._functorch.peek_interpreter_stack() is not None,
        "torch.jit.trace": torch._C._get_tracing_state() is not None,
        "a hook of saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
    }
    if found := [what for what, is_active in active.items() if is_active]:
        raise NotComparableError(f"{found[0]} is active")

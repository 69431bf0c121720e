"""Arguments for a compiled module that nobody gave: made from what it takes.

Floating-point numbers are random, whole numbers zero and flags true: zero is an index of every table, and an index that
is none ends the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from trtcache.errors import InputError
from trtcache.lowering.expressions import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trtcache.lowering.interface import Interface, TensorInput
    from trtcache.runtime.signature import CallSignature


def sample(interface: Interface, call: CallSignature, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, Any]:
    """Return positional arguments and those by name.

    Args:
        interface: what the engine takes.
        call: how arguments are flattened.
        shapes: sizes of arguments, for those that vary; names are those of errors, ``input_ids`` or ``states[0]``.

    Raises:
        InputError: sizes are missing or do not fit, or there is no such argument.
    """
    names = {one.leaf: call.label(one.leaf).removeprefix("argument ") for one in interface.inputs}
    if unknown := [name for name in shapes if name not in names.values()]:
        raise InputError("arguments", f"one of {', '.join(names.values())}", unknown[0])
    sizes: dict[int, int] = {}
    for one in interface.inputs:
        given = shapes.get(names[one.leaf])
        _match(one, (*given, 0) if given is not None and one.number else given, names[one.leaf], sizes)
    leaves: dict[int, Any] = {value.leaf: value.value for value in interface.values}
    tensors = {one.leaf: _tensor(one, names[one.leaf], sizes, interface) for one in interface.inputs}
    leaves |= {one.leaf: tensors[one.leaf].shape[0] if one.number else tensors[one.leaf] for one in interface.inputs}
    spec = call.in_spec
    args, kwargs = pytree.tree_unflatten([leaves[leaf] for leaf in range(spec.num_leaves)], spec)
    return args, kwargs


def _match(one: TensorInput, given: tuple[int, ...] | None, name: str, sizes: dict[int, int]) -> None:
    """Note the sizes that a given shape says.

    Raises:
        InputError: it has other sizes than the input.
    """
    if given is None:
        return
    told = "x".join(map(str, given))
    if len(given) != len(one.shape):
        raise InputError(f"argument {name}", f"{len(one.shape)} sizes", told)
    for written, size in zip(one.shape, given, strict=True):
        if isinstance(written, dict):
            known = sizes.setdefault(int(str(written["sym"])), size)
            if known != size:
                raise InputError(f"argument {name}", f"the size {known} that another argument has", told)
        elif isinstance(written, int) and written != size:
            raise InputError(f"argument {name}", f"a size of {written}", told)


def _tensor(one: TensorInput, name: str, sizes: Mapping[int, int], interface: Interface) -> torch.Tensor:
    shape = [evaluate(written, sizes) for written in one.shape]
    known = [size for size in shape if size is not None]
    if len(known) != len(shape):
        wanted = "x".join("?" if size is None else str(size) for size in shape)
        raise InputError(f"argument {name}", "a number for each size that varies", wanted, f"say {name}=SIZES")
    for written, size in zip(one.shape, known, strict=True):
        _check_range(written, size, name, interface)
    dtype = getattr(torch, one.dtype)
    stride = [evaluate(step, sizes) for step in one.stride]
    steps = [step for step in stride if step is not None]
    made = torch.empty_strided(known, steps, dtype=dtype, device=one.device) if len(steps) == len(known) else None
    if made is None:
        made = torch.empty(known, dtype=dtype, device=one.device)
    if dtype.is_floating_point or dtype.is_complex:
        return made.copy_(torch.randn(known, generator=torch.Generator().manual_seed(0)))
    return made.fill_(dtype is torch.bool)


def _check_range(written: object, size: int, name: str, interface: Interface) -> None:
    if not isinstance(written, dict):
        return
    least, most = interface.ranges[int(str(written["sym"]))]
    if size < (least or 0) or (most is not None and size > most):
        raise InputError(f"argument {name}", f"a size of {least or 0} to {'any' if most is None else most}", str(size))

"""Calls that Inductor computes wrongly on a CPU, as other calls that it computes as torch does (torch 2.13).

Calls on other devices are unchanged, so that their programs keep their keys.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from trtcache.lowering.rewriting import insert_cast, tensor_of

aten = torch.ops.aten

EXTREMES = frozenset(
    {
        *(aten.amax.default, aten.amin.default, aten.max.dim, aten.min.dim),
        *(aten.argmax.default, aten.argmin.default),
    }
)
_BYTES = frozenset({torch.int8, torch.uint8})


def widen_bytes(node: fx.Node, values: list[Any]) -> None:
    """Take an extreme of int8 or uint8 in int32, and cast what is one of the elements back.

    Inductor loads 16 bytes into a vector of 32 or 64, and reduces all of it, with the zeros behind them: the maximum of
    40 negative numbers was 0, and the place of it any number.
    """
    value = tensor_of(values[0])
    if value is None or value.dtype not in _BYTES or value.device.type != "cpu":
        return
    values[0] = insert_cast(node, values[0], value.to(torch.int32))
    result = node.meta["val"]
    if not isinstance(result, torch.Tensor):  # max and min along a dimension: the elements and their places
        elements, places = result
        node.meta["val"] = (elements.to(torch.int32), places)
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 0:
                _cast_back(user, value.dtype)
    elif result.dtype is value.dtype:
        _cast_back(node, value.dtype)


def _cast_back(node: fx.Node, dtype: torch.dtype) -> None:
    value = node.meta["val"]
    node.meta["val"] = value.to(torch.int32)
    with node.graph.inserting_after(node):
        cast = node.graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta["val"] = value
    node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)

"""Conditions on sizes that an operator's kernel checks and its decomposition does not.

A program with ``cross_entropy_loss`` of an input of sizes (N, C, d1, d2) raises for a target of other sizes than
(N, d1, d2). Decomposed it is a ``gather``, which takes a smaller target and answers. torch's fake kernels do not check
it either, so that export notes no guard for it. The conditions are added to the program's guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch

from trtcache.errors import ExportError
from trtcache.lowering.rewriting import expression, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import fx
    from torch.export import ExportedProgram

aten = torch.ops.aten

_LOSSES = frozenset(
    {
        *(aten.cross_entropy_loss.default, aten.nll_loss_nd.default, aten.nll_loss.default, aten.nll_loss2d.default),
        *(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, aten.multi_margin_loss.default),
    }
)


def operator_checks(program: ExportedProgram) -> tuple[Any, ...]:
    """Return the conditions of an exported program's operators, as sympy expressions, without those that always hold.

    Raises:
        ExportError: an operator's fake kernel and decomposition give another shape than its kernel.
    """
    for node in program.graph.nodes:
        values = tensor_of(node.args[0]) if node.target is aten.multilabel_margin_loss.default else None
        if values is not None and values.dim() < 2:  # a batch has two dimensions
            why = "torch decomposes multilabel_margin_loss of one sample to another shape: give it a batch of one"
            raise ExportError("the program", why)
    found = (one for node in program.graph.nodes if node.target in _LOSSES for one in _loss_conditions(node))
    return tuple(dict.fromkeys(one for one in found if one not in {sympy.true, True}))


def _loss_conditions(node: fx.Node) -> Iterator[Any]:
    if node.target is aten.multi_margin_loss.default:  # its kernel leaves the mean of nothing uninitialized
        given = tensor_of(node.args[0])
        yield from (
            sympy.Ne(expression(size), 0, evaluate=False) for size in (given.shape if given is not None else ())
        )
        return
    values, target = (tensor_of(argument) for argument in node.args[:2])
    if values is None or target is None or target.dim() != max(values.dim() - 1, 0):
        return  # a target of probabilities has the sizes of the input, which elementwise operators compare
    others = [size for dim, size in enumerate(values.shape) if dim != min(1, values.dim() - 1)]
    for size, wanted in zip(target.shape, others, strict=True):
        yield sympy.Eq(expression(size), expression(wanted))

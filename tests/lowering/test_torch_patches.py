"""Decompositions without torch's repetitions: the programs are the same, and torch is as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._export import utils
from torch._ops import OperatorBase

from trtcache.lowering import patch_attributes
from trtcache.lowering.torch_patches import quick_overrides

if TYPE_CHECKING:
    from torch.export import ExportedProgram

CPU, PYTHON = torch._C.DispatchKey.CPU, torch._C.DispatchKey.Python


class Composite(nn.Module):
    """Calls composite operators of torch, one that is kept, and one of its own namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.einsum("ij,kj->ik", self.linear(x), x) + nn.functional.silu(x)
        x = nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0]
        doubled: torch.Tensor = torch.ops.trtcache_composite.twice(torch.narrow(x, 0, 1, 2))
        return doubled


@pytest.fixture
def program() -> ExportedProgram:
    """Return a program that calls an operator which was defined a moment ago."""
    library: Any = torch.library.Library("trtcache_composite", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
    if not hasattr(torch.ops.trtcache_composite, "twice"):
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    program_ = torch.export.export(Composite().eval(), (torch.rand(4, 4),))
    program_.library = library  # type: ignore[attr-defined]  # it ends with the program
    return program_


def _decomposed(program: ExportedProgram, kept: object) -> str:
    table = torch.export.default_decompositions()
    for target in list(table):
        if str(target) == kept:
            del table[target]
    return str(program.run_decompositions(table).graph)


@pytest.mark.parametrize("kept", ["", "aten.linear.default", "aten.scaled_dot_product_attention.default"])
def test_programs_are_as_without(program: ExportedProgram, kept: str) -> None:
    """Composite operators are decomposed or kept, those of other namespaces too."""
    expected = _decomposed(program, kept)
    kernels = dict(torch.ops.aten.linear.default.py_kernels)
    with quick_overrides():
        assert _decomposed(program, kept) == expected
    assert kept in expected
    assert torch.ops.aten.linear.default.py_kernels == kernels
    assert _decomposed(program, kept) == expected


def test_torch_has_its_own_functions_afterwards() -> None:
    """Also after an error in the block."""
    before = utils._materialize_cpp_cia_ops, OperatorBase.py_impl
    with quick_overrides():
        assert before[0] is not utils._materialize_cpp_cia_ops
    with pytest.raises(KeyError), quick_overrides():
        raise KeyError
    assert (utils._materialize_cpp_cia_ops, OperatorBase.py_impl) == before


def test_kernels_are_registered_as_by_torch() -> None:
    """A second one for a key, and one for the key of modes, are errors; a class of tensors has a table of its own."""

    class Mine(torch.Tensor):
        pass

    target = torch.ops.aten.numpy_T.default
    saved = dict(target.py_kernels)
    try:
        with quick_overrides():
            target.py_impl(CPU)(abs)
            assert target.py_kernels[CPU] is abs
            with pytest.raises(RuntimeError, match="override a python impl"):
                target.py_impl(CPU)(abs)
            with pytest.raises(AssertionError, match="register a mode"):
                target.py_impl(PYTHON)(abs)
            assert target.py_impl(Mine)(abs) is abs
            assert target.python_key_table.pop(Mine) is abs
    finally:
        target.py_kernels.clear()
        target.py_kernels.update(saved)
        target._dispatch_cache.clear()


class Patched:
    """Has an attribute of its class, and cannot have one."""

    shown = 1

    def __setattr__(self, name: str, value: object) -> None:
        if name == "refused":
            raise ValueError(name)
        super().__setattr__(name, value)


def test_patches_are_undone_also_if_one_is_refused() -> None:
    """Own attributes are as before, inherited ones are inherited again, and the error is that of the attribute."""
    patched = Patched()
    patched.own = 2  # type: ignore[attr-defined]  # an attribute of the object alone
    with pytest.raises(ValueError, match="refused"), patch_attributes(patched, own=3, shown=4, refused=5):
        raise AssertionError
    assert vars(patched) == {"own": 2}
    with patch_attributes(patched, own=3, shown=4):
        assert (vars(patched), Patched.shown) == ({"own": 3, "shown": 4}, 1)
    assert vars(patched) == {"own": 2}

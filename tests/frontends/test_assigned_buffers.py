"""Buffers that ``forward`` assigns: each call answers like eager's, or the export is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.models import Calls
from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable

    import trtcache

X = torch.arange(8.0).view(2, 4)


class Holder(nn.Module):
    """A module with the buffers ``n`` and ``other``, and one that is None before them."""

    def __init__(self, *, with_none: bool = False) -> None:
        super().__init__()
        if with_none:
            self.register_buffer("none", None)
        self.register_buffer("n", torch.zeros(4))
        self.register_buffer("other", torch.ones(4))


class Assigning(nn.Module):
    """A model with the buffers of a ``Holder``, in itself or in a submodule, and a function as ``forward``."""

    def __init__(self, change: Callable[[nn.Module, torch.Tensor], torch.Tensor], where: str) -> None:
        super().__init__()
        self.change = change
        self.inner = Holder(with_none=where == "submodule")
        self.weight = nn.Parameter(torch.ones(4))
        if where != "submodule":
            for name, buffer in Holder(with_none=where == "behind none")._buffers.items():
                self.register_buffer(name, buffer)
        self.inside = where == "submodule"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call the function with the holder of the buffers."""
        return self.change(self.inner if self.inside else self, x)


def count(holder: Any, x: Any) -> Any:
    """Add 1 to the buffer."""
    holder.n = holder.n + 1
    return x + holder.n + holder.other


def count_in_table(holder: Any, x: Any) -> Any:
    """Count the calls in a buffer, which is not assigned as an attribute."""
    holder._buffers["n"] = holder._buffers["n"] + 1
    return x + holder.n


def overwrite(holder: Any, x: Any) -> Any:
    """Assign what does not depend on the value before."""
    holder.n = x[0] * 2
    return x + holder.n


def move(holder: Any, x: Any) -> Any:
    """Assign the same values."""
    holder.n = holder.n[:4].to(x.device).float()
    return x + holder.n


def return_before(holder: Any, x: Any) -> Any:
    """Return the value before, of which the new one is no part."""
    before = holder.n[1:]
    holder.n = holder.n + x[0]
    return before


def create(holder: Any, x: Any) -> Any:
    """Create a buffer; torch.export would write its value to the input of the call."""
    if not hasattr(holder, "created"):
        holder.register_buffer("created", torch.full((4,), 2.0))
    created = holder.created
    return x + created


def assign_parameter(holder: Any, x: Any) -> Any:
    """Assign a parameter."""
    holder.weight = nn.Parameter(holder.weight * 2)
    return x + holder.weight


def remove(holder: Any, x: Any) -> Any:
    """Move a buffer to another place among those of the module."""
    before = holder.n
    del holder.n
    holder.register_buffer("n", before)
    holder.n = holder.n + 1
    return x + holder.n


def widen(holder: Any, x: Any) -> Any:
    """Assign a value of another dtype, which later calls read."""
    holder.n = holder.n + x.double().sum(0)
    return x + holder.n


def shrink(holder: Any, x: Any) -> Any:
    """Assign a value of another shape."""
    holder.n = holder.n.sum() + x.mean()
    return x + holder.n


ANSWERED = [
    (count, "model"),
    (overwrite, "model"),
    (overwrite, "submodule"),
    (move, "model"),
    (move, "submodule"),
    (create, "submodule"),
]
REFUSED = [
    (count_in_table, "model", "buffer n"),
    (count_in_table, "submodule", "buffer inner.n"),
    (count, "submodule", "buffer inner.n"),
    (count, "behind none", "buffer n"),
    (move, "behind none", "buffer n"),
    (return_before, "model", "buffer n"),
    (create, "model", "buffer created"),
    (assign_parameter, "model", "parameter weight"),
    (remove, "model", "buffer n"),
    (widen, "model", "buffer n a value of another dtype or shape"),
    (shrink, "model", "buffer n a value of another dtype or shape"),
]


@pytest.mark.parametrize(("change", "where"), ANSWERED, ids=lambda one: getattr(one, "__name__", one))
def test_calls_answer_like_eagers(
    compiled: Callable[..., trtcache.CompiledModule], change: Callable[..., torch.Tensor], where: str
) -> None:
    """Each of several calls has the state that the calls before left, and inputs are left alone."""
    model, eager = Assigning(change, where).eval(), Assigning(change, where).eval()
    module = compiled(model, (X.clone(),))
    for step in range(3):
        x = X + step
        torch.testing.assert_close(module(x), eager(x.clone()))
        assert torch.equal(x, X + step)


@pytest.mark.parametrize(("change", "where", "named"), REFUSED, ids=lambda one: getattr(one, "__name__", one))
def test_an_assignment_that_torch_loses_is_refused(
    compiled: Callable[..., trtcache.CompiledModule], change: Callable[..., torch.Tensor], where: str, named: str
) -> None:
    """The message names what is assigned, and the model is as it was."""
    model = Assigning(change, where).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ExportError, match=rf"forward assigns {named}, .* in place \(copy_\)"):
        compiled(model, (X.clone(),))
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Converting(nn.Module):
    """A model that copies values of another dtype, shape and layout into its buffers, and reads these."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("rounded", torch.zeros(2, 4, dtype=torch.bfloat16))
        self.register_buffer("rows", torch.zeros(2, 4), persistent=False)
        self.register_buffer("turned", torch.zeros(4, 2))
        self.register_buffer("image", torch.zeros(1, 3, 4, 2).to(memory_format=torch.channels_last))
        self.register_buffer("filled", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Write to each buffer and return it, and what is computed from it."""
        self.mean.copy_(x.mean())
        self.count.copy_(x.sum() + 0.7)
        self.rounded.copy_(x * 1.003)
        self.rows[:] = x[0]
        self.turned.copy_(x.t())
        self.image.copy_(x.t())
        self.filled.fill_(x.mean())
        places = (torch.as_strided(self.turned, (8,), (1,)), torch.as_strided(self.image, (24,), (1,)))
        sums = (self.mean.sum(), self.count * 10, self.rounded.float(), self.rows * 1, self.filled.sum())
        return *sums, *places, self.turned.view(-1) + 1, *(one + 0 for one in self.buffers()), self.count, self.mean


@pytest.mark.parametrize("is_exported", [False, True])
def test_a_buffer_has_the_dtype_and_shape_that_it_had(
    compiled: Callable[..., trtcache.CompiledModule], is_exported: bool
) -> None:
    """In torch, decompositions replace a copy into a buffer by what is copied."""
    eager = Converting()
    source = torch.export.export(Converting(), (X,)) if is_exported else Converting()
    module = compiled(source, () if is_exported else (X,))
    for step in range(2):
        x = X * 0.3 + step
        for ours, expected in zip(module(x), eager(x), strict=True):
            torch.testing.assert_close(ours, expected, rtol=0, atol=0, check_stride=True)
    for name, buffer in eager.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], buffer, rtol=0, atol=0)


class Scaled(nn.Module):
    """A model with attributes on its weights: a number and a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))
        self.weight.scale, self.shift.table = 3.0, torch.arange(4.0)  # type: ignore[union-attr]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x * self.weight * getattr(self.weight, "scale", 1.0) + getattr(self.shift, "table", 0.0)
        return found


@pytest.mark.parametrize("direct", ["off", "on"])
def test_attributes_of_weights_are_there(compiled: Callable[..., trtcache.CompiledModule], direct: str) -> None:
    """torch.export replaces weights by fake tensors, and leaves such attributes out."""
    model: Any = Scaled()
    for scale in (3.0, 3.0, 5.0):
        model.weight.scale = scale
        torch.testing.assert_close(compiled(model, (X,), direct=direct)(X), model(X))


def swap(holder: Any, x: Any) -> Any:
    """Exchange two buffers."""
    holder.n, holder.other = holder.other, holder.n
    return x + holder.n


def assign_data(holder: Any, x: Any) -> Any:
    """Assign the data of a buffer."""
    holder.n.data = holder.n.data * 2
    return x + holder.n


@pytest.mark.parametrize("change", [swap, assign_data])
def test_what_torch_refuses_has_a_remedy(
    compiled: Callable[..., trtcache.CompiledModule], change: Callable[..., torch.Tensor]
) -> None:
    """The messages of torch do not name the buffer."""
    with pytest.raises(ExportError, match=r"forward assigns .*: write to it in place \(copy_\)"):
        compiled(Assigning(change, "model").eval(), (X.clone(),))


class Overlapping(nn.Module):
    """Two buffers in one memory, one of which a call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(4, 4))
        self.register_buffer("part", self.whole[1:3])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Change both."""
        self.whole.add_(1)
        self.part.mul_(2)
        return x + self.whole.sum()


def transpose(_: object, x: torch.Tensor) -> torch.Tensor:
    """Change the shape of an input."""
    x.t_()
    return x + 1


def draw(_: object, x: torch.Tensor) -> torch.Tensor:
    """Draw integers in place."""
    return x + torch.empty(4).random_(0, 5)


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (Overlapping(), "register it once"),
        (Calls(transpose), "instead of t_"),
        (Calls(draw), r"torch\.randint"),
    ],
    ids=["overlapping buffers", "shape in place", "random integers in place"],
)
def test_what_torch_cannot_decompose_has_a_remedy(
    compiled: Callable[..., trtcache.CompiledModule], model: nn.Module, remedy: str
) -> None:
    """The messages of torch name its own variables."""
    with pytest.raises(ExportError, match=remedy):
        compiled(model.eval(), (torch.ones(4, 4),))

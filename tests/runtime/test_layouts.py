"""Results lie in memory as the model's own do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from trtcache.errors import InputError
from trtcache.runtime.inputs import has_layout, to_layout

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 0, 2)])
def test_a_result_is_laid_out_in_an_order(order: tuple[int, ...]) -> None:
    """A copy has the same values, and its dimensions in the order asked for."""
    result = torch.randn(2, 3, 4)
    copy = to_layout(result, order)
    assert torch.equal(copy, result)
    assert has_layout(copy, order)
    steps = [copy.stride(dim) for dim in order]
    assert steps == sorted(steps, reverse=True)
    assert has_layout(result, order) == (order == (0, 1, 2))


def test_a_size_of_one_lies_in_any_place() -> None:
    """A dimension of size 1 does not decide the layout."""
    assert has_layout(torch.randn(1, 5), (1, 0))
    assert has_layout(torch.randn(5), (0,))
    assert has_layout(torch.tensor(1.0), ())


def test_an_input_is_not_copied_for_a_stride_that_says_nothing(interpreter: str, engines: Path) -> None:
    """The stride of a dimension of size 1 may be any number."""
    module = trtcache.compile(torch.nn.Linear(4, 4), (torch.randn(1, 4),), backend=interpreter, cache=engines)
    x = torch.randn(4).as_strided((1, 4), (9, 1))
    (given,) = module._module_call.check([x])
    assert given.data_ptr() == x.data_ptr()
    assert given.stride() == (4, 1)
    assert torch.equal(given, x)


def test_an_operator_that_needs_a_contiguous_input_gets_one(interpreter: str, engines: Path) -> None:
    """The kernel of GroupNorm raises for another on a CPU."""
    model, x = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.ReLU()), torch.randn(3, 4, 6, 5).transpose(2, 3)
    module = trtcache.compile(model, (x,), backend=interpreter, cache=engines)
    torch.testing.assert_close(module(x), model(x))


@pytest.fixture(scope="module")
def of_images(engines: Path) -> tuple[torch.nn.Module, trtcache.CompiledModule]:
    """Two convolutions of images with one channel, compiled for any number of them."""
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 1, 3)).eval()
    batch = ({0: torch.export.Dim("batch", min=1, max=64)},)
    return model, trtcache.compile(model, (torch.randn(3, 1, 8, 9),), dynamic_shapes=batch, cache=engines)


def test_images_of_one_channel_give_the_same_in_either_layout(
    of_images: tuple[torch.nn.Module, trtcache.CompiledModule],
) -> None:
    """Both are contiguous to torch, whose convolution returns another layout for the second."""
    model, module = of_images
    images = torch.randn(4, 8, 9, 1).permute(0, 3, 1, 2)
    assert images.is_contiguous()
    assert images.stride() == (72, 1, 9, 1)
    torch.testing.assert_close(module(images), model(images))
    (given,) = module._module_call.check([images])
    assert (given.data_ptr(), given.stride()) == (images.data_ptr(), (72, 72, 9, 1))


def test_tensors_of_function_transforms_are_refused(interpreter: str, engines: Path) -> None:
    """Their memory does not have what they stand for; a tensor that no transform changes is no obstacle."""
    linear, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    module = trtcache.compile(linear, (x,), backend=interpreter, cache=engines)
    with pytest.raises(InputError, match="vmap or grad"):
        torch.func.vmap(module)(torch.randn(2, 3, 4))
    with pytest.raises(InputError, match="vmap or grad"):
        torch.func.grad(lambda y: module(y).sum())(x)
    made = torch.func.vmap(lambda y: y + module(x).sum())(torch.zeros(2))
    torch.testing.assert_close(made, linear(x).sum().detach().expand(2))

"""``trtcache why --direct``: the reason that direct mode gave last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import trtcache

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Result


def net(rate: float) -> nn.Module:
    """Return a model with a dropout rate."""
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate)).eval()


def test_the_last_miss_is_explained(interpreter: str, run: Callable[..., Result]) -> None:
    """As text and as JSON; an unknown name is reported."""
    for rate in (0.1, 0.2):
        trtcache.compile(net(rate), (torch.randn(3, 4),), backend=interpreter, direct="on", name="net")
    assert run("why", "--direct", "net").err == "net: miss: attribute 1.p: 0.1 -> 0.2\n"
    assert run("why", "--direct", "--json", "net").json == {"name": "net", "direct": "miss: attribute 1.p: 0.1 -> 0.2"}
    assert "has no recorded miss for a model of this name" in run("why", "--direct", "other").err

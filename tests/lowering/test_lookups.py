"""Lookups writes every choice of rows as one ``index``."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.lowering.contract import DYNAMIC, Calls, keeps_its_promise, only_with, operators
from trtcache.lowering.rewrites.indexing import Lookups

TABLE = torch.randn(5, 4)
IDS = torch.tensor([[0, 2, 1], [4, 4, 3]])


@pytest.mark.parametrize(
    "function",
    [
        lambda model, i: functional.embedding(i, model.t),
        lambda model, i: functional.embedding(i.int(), model.t),
        lambda model, i: model.t.index_select(0, i[0].contiguous()),
        lambda model, i: model.t.index_select(1, (i // 2)[0]),
    ],
)
def test_rows_are_taken_by_one_operator(function: object) -> None:
    """An embedding and a selection along any dimension are an ``index``."""
    assert operators(keeps_its_promise(Lookups(), Calls(function, t=TABLE), IDS))[-1] == "index"


def test_tables_that_lie_otherwise_stay() -> None:
    """The result of a transposed table would lie in memory as that does."""
    graph = keeps_its_promise(Lookups(), Calls(lambda model, i: functional.embedding(i, model.t.t()), t=TABLE), IDS % 4)
    assert operators(graph)[-1] == "embedding"


def test_an_embedding_is_an_index() -> None:
    """Only this pass gives ``embedding(i, t)`` and ``t[i]`` one key, for any number of rows."""
    one = Calls(lambda model, i: functional.embedding(i, model.t), t=TABLE)
    only_with("lookups", one, Calls(lambda model, i: model.t[i], t=TABLE), IDS, dynamic=({0: DYNAMIC},))

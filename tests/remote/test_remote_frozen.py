"""Engines for one set of weights, from a remote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.models import Affine
from trtcache.errors import BuildForbiddenError
from trtcache.remote import uploads

if TYPE_CHECKING:
    from tests.remote.conftest import Hosts
    from trtcache.cache import Cache

X = torch.randn(3, 4)
PATIENT = {"TRTCACHE_REMOTE_CONNECT_TIMEOUT": "30", "TRTCACHE_REMOTE_TIMEOUT": "60"}  # torch keeps both cores busy

pytestmark = pytest.mark.usefixtures("interpreter")


def compiled(cache: Cache, value: float = 1.0) -> trtcache.CompiledModule:
    """Compile with a backend that never builds an engine which takes other weights."""
    return trtcache.compile(Affine(value), (X,), backend="freezer", cache=cache)


def test_an_engine_for_these_weights_alone_is_found_without_a_build(hosts: Hosts) -> None:
    """On a machine that must not build, too; other weights have no engine."""
    built = compiled(hosts.writer(**PATIENT)).report.partitions[0]
    assert built.outcome == "built"
    assert uploads.flush(60) == 0
    found = compiled(hosts.host("b", TRTCACHE_FORBID_BUILD="1", **PATIENT))
    assert (found.report.partitions[0].outcome, found.report.partitions[0].key) == ("hit", built.key)
    assert torch.allclose(found(X)[0], Affine(1.0)(X)[0])
    with pytest.raises(BuildForbiddenError):
        compiled(hosts.host("c", TRTCACHE_FORBID_BUILD="1", **PATIENT), 2.0)

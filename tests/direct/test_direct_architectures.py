"""Models of known architectures: direct mode recognizes them, and exporting agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.effort import TORTURE
from tests.integrations.dynamo.models import ARCHITECTURES
from tests.keys.architectures import MODELS

if TYPE_CHECKING:
    from pathlib import Path

ALL = {**MODELS, **ARCHITECTURES}
QUICK = ("bert",)
LEFT_ALONE = dict.fromkeys(("crepe", "voice_encoder"), "globals of no module")
"""Models that direct mode leaves alone, and a word of the reason: the tests load two files that no module is of."""


@pytest.mark.torture
@pytest.mark.parametrize("name", sorted(ALL if TORTURE else QUICK))
def test_exporting_gives_what_direct_mode_says(name: str, interpreter: str, tmp_path: Path) -> None:
    """A second instance with other weights hits, and verifying it finds no difference."""
    seen = []
    for mode in ("on", "on", "verify"):
        torch.manual_seed(len(seen))
        model, args = ALL[name]()
        with torch.no_grad():
            module = trtcache.compile(
                model.eval(), args, backend=interpreter, cache=tmp_path / "cache", direct=mode, name=name
            )
        seen.append(module.report.direct)
    print(name, seen)  # noqa: T201  # make torture shows what was tried
    if name in LEFT_ALONE:
        assert all(LEFT_ALONE[name] in one for one in seen)
    else:
        assert seen[1:] == ["hit", "verified"]

"""The self-test's model and its compilation: small, with the constructs that fail first.

B: batch, 1 to 8 rows. S: 5 positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trtcache import api
from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.frozen import frozen_dataclass
from trtcache.digests import CacheKey

if TYPE_CHECKING:
    from trtcache.runtime import CompiledModule

NAME = "selftest"
WORDS, WIDTH, POSITIONS, MOST_ROWS = 12, 8, 5, 8


class SelfTest(nn.Module):
    """A convolution with its norm, a product, an embedding tied to the last product's weight, a softmax."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv, self.norm = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH)
        mean = torch.empty(WIDTH).uniform_(-0.5, 0.5)
        self.norm.load_state_dict({"running_mean": mean, "running_var": mean.abs() + 0.5}, strict=False)
        self.table = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WORDS)
        self.last.weight = self.table.weight

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return (B, S, words) probabilities of ``image`` (B, 3, 8, 8) and ``words`` (B, S)."""
        seen = self.norm(self.conv(image)).relu().mean((2, 3))
        mixed = torch.relu(self.mix(self.table(words) + seen[:, None]))
        probabilities: torch.Tensor = self.last(mixed).softmax(-1)
        return probabilities


@frozen_dataclass
class Subject:
    """The tested backend, device and cache.

    Attributes:
        backend: the backend's name.
        device: the model's device, ``cpu`` or ``cuda``.
        target: the build target; None for this machine.
        root: the cache directory.
        settings: settings of every build.
    """

    backend: str
    device: str
    target: str | None
    root: Path
    settings: Mapping[str, Any]

    def model(self, seed: int = 0) -> SelfTest:
        """Return a model with weights from a seed."""
        return SelfTest(seed).to(self.device).eval()

    def args(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs with this number of rows."""
        generator = torch.Generator().manual_seed(rows)
        image = torch.randn(rows, 3, 8, 8, generator=generator)
        words = torch.randint(0, WORDS, (rows, POSITIONS), generator=generator)
        return image.to(self.device), words.to(self.device)

    def compile(self, seed: int = 0, *, root: Path | None = None, forbid_build: bool = False) -> CompiledModule:
        """Compile the model of a seed with this or another cache directory."""
        cache = Cache(config=replace(Config(root or self.root), forbid_build=forbid_build))
        return api.compile(self.model(seed), self.args(4), cache=cache, on_miss="build", **self._options())

    def key(self, seed: int = 0) -> CacheKey:
        """Return the key of the stored engine of the model of a seed; some nodes may have stayed in torch."""
        (partition,) = self.compile(seed, forbid_build=True).report.partitions
        assert isinstance(partition.key, CacheKey)  # noqa: S101  # it was found by it
        return partition.key

    def _options(self) -> dict[str, Any]:
        rows = torch.export.Dim("rows", min=1, max=MOST_ROWS)
        return {
            "dynamic_shapes": {"image": {0: rows}, "words": {0: rows}},
            "backend": self.backend,
            "target": self.target,
            "settings": dict(self.settings),
            "name": NAME,
        }

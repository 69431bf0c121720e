"""Small models of many kinds with dynamic sizes, and the digests of their exported programs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn
from torch.export import Dim

from tests.keys.tracing import operators_listed_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Subject = tuple[nn.Module, tuple[torch.Tensor, ...], tuple[dict[int, Any], ...]]

_WIDTH = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
_CONFIG = {**_WIDTH, "vocab_size": 40, "embedding_size": 16, "pad_token_id": 1, "num_key_value_heads": 2}
_OTHER_NAMES = {"dim": 16, "n_heads": 2, "n_layers": 1, "hidden_dim": 16, "word_embed_proj_dim": 16, "ffn_dim": 16}
_TEXT = (
    *(
        "Albert",
        "Bert",
        "BigBird",
        "Bloom",
        "Camembert",
        "Deberta",
        "DistilBert",
        "Electra",
        "Ernie",
        "GPT2",
        "GPTNeoX",
        "Gemma",
        "Llama",
    ),
    *("MPNet", "Mistral", "OPT", "Phi", "Qwen2", "Roberta", "XLMRoberta"),
)


class Residual(nn.Module):
    """Convolutions, BatchNorm and a shortcut with a stride."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.shortcut = nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.second(x) + self.shortcut(x)).mean((2, 3))


class UpAndDown(nn.Module):
    """Convolutions to half the size, and two ways back."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 3, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        resized = nn.functional.interpolate(x, scale_factor=2).mean(1, keepdim=True)
        return torch.cat([resized.expand(-1, 3, -1, -1), self.up(x)], 1)


class Sequence(nn.Module):
    """A recurrent layer over a sequence of any length."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0].sum(1)  # type: ignore[no-any-return]  # a tensor


def subjects() -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Yield names, and functions that create a model, its inputs and their dynamic sizes."""
    image, pool = (
        torch.ones(2, 3, 16, 16),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3)),
    )
    for kind, model in (("residual", Residual()), ("up and down", UpAndDown()), ("pool", pool)):
        yield f"{kind}, batch", lambda model=model: (model.eval(), (image,), ({0: Dim("b", min=2, max=64)},))  # type: ignore[misc]
        for name, dims in (("batch", (0,)), ("size", (2, 3)), ("all", (0, 2, 3))):
            sizes = dict.fromkeys(dims, Dim.AUTO)
            yield f"{kind}, {name}, AUTO", lambda model=model, sizes=sizes: (model.eval(), (image,), (sizes,))  # type: ignore[misc]
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    yield "convolution and ReLU", lambda: (conv, (image,), ({0: Dim("b")},))
    steps = torch.ones(2, 5, 4)
    layers: dict[str, nn.Module] = {
        "LSTM": Sequence(nn.LSTM),
        "GRU": Sequence(nn.GRU),
        "encoder": nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        "convolution": nn.Conv1d(5, 3, 3, padding=1),
        "linear": nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)),
    }
    for name, layer in layers.items():
        yield f"{name}, batch", lambda layer=layer: (layer.eval(), (steps,), ({0: Dim.AUTO},))  # type: ignore[misc]
    for name in ("encoder", "linear"):
        yield f"{name}, both", lambda name=name: (layers[name].eval(), (steps,), ({0: Dim.AUTO, 1: Dim.AUTO},))  # type: ignore[misc]
    for name in _TEXT:
        yield name, lambda name=name: _text(name)  # type: ignore[misc]


def _text(name: str) -> Subject:
    config = getattr(transformers, f"{name}Config")(**_CONFIG, **_OTHER_NAMES, max_position_embeddings=64)
    model = getattr(transformers, f"{name}Model")(config)
    return model.eval(), (torch.ones(2, 8, dtype=torch.long),), ({0: Dim.AUTO, 1: Dim.AUTO},)


def digests(step: int = 1) -> dict[str, str]:
    """Return the digest of the exported program of every ``step``-th subject."""
    from trtcache.frontends.resolve import register_transformers_cache
    from trtcache.keys.program_digest import exported_digest
    from trtcache.lowering.capture import export

    found = {}
    with operators_listed_once():
        for name, make in islice(subjects(), 0, None, step):
            torch.manual_seed(0)
            model, args, sizes = make()
            register_transformers_cache()
            found[name] = str(exported_digest(export(model, args, {}, sizes)))
    return found

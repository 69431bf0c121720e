"""Models for ``torch.compile``: ten architectures of transformers and the demo's, with calls of two batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

from tests.keys.architectures import MODELS, First
from trtcache_cli.demo_embedder import load_embedder, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.keys.architectures import Call

_TEXT = {"vocab_size": 60, "max_position_embeddings": 16}


def distilbert() -> Call:
    """A DistilBERT."""
    config = transformers.DistilBertConfig(**_TEXT, dim=16, n_layers=2, n_heads=2, hidden_dim=32)
    return First(transformers.DistilBertModel(config)), (torch.tensor([[1, 5, 9], [3, 8, 6]]),)


def llama() -> Call:
    """A Llama with grouped queries and rotary positions."""
    config = transformers.LlamaConfig(
        **_TEXT,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        use_cache=False,
    )
    return First(transformers.LlamaForCausalLM(config)), (torch.tensor([[1, 5, 9], [3, 8, 6]]),)


def demo() -> Call:
    """The demo's sentence embedder with its trained weights."""
    return load_embedder(), tokenize()


_OWN = {made.__name__: made for made in (distilbert, llama, demo)}
_SHARED = ("bert", "vit", "resnet", "gpt2", "t5", "whisper", "clip_text", "swin")

ARCHITECTURES: dict[str, Callable[[], Call]] = {**{name: MODELS[name] for name in _SHARED}, **_OWN}


def model_and_calls(name: str) -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    """Return a model in eval mode, and arguments for batches of 2 and of 5, all of which the name decides."""
    torch.manual_seed(0)
    model, args = ARCHITECTURES[name]()
    return model.eval(), [tuple(_batch(one, size) for one in args) for size in (2, 5)]


def _batch(tensor: torch.Tensor, size: int) -> torch.Tensor:
    repeated = tensor.repeat(size, *[1] * (tensor.dim() - 1))[:size]
    return repeated.flip(-1).contiguous() if size == 5 and not tensor.is_floating_point() else repeated

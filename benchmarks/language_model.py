"""Tokens per second of a language model: ``python -m benchmarks.language_model [cuda]``.

Greedy decoding of one sequence in three ways that take turns: the ``Decoder`` of docs/llm.md in eager mode, its decode
step compiled by ``torch.compile``, and trtcache's two programs. The loop is the same. Random weights.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import torch
import transformers

from tests.documents import definitions

LENGTH, COUNT, ROUNDS = 128, 64, 5
_SIZES = {"num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 8000}
_WIDE = {**_SIZES, "hidden_size": 512, "intermediate_size": 1024, "num_key_value_heads": 4}
MODELS: dict[str, dict[str, int]] = {
    "LlamaForCausalLM": _WIDE,
    "Qwen2ForCausalLM": _WIDE,
    "GPT2LMHeadModel": {**_SIZES, "hidden_size": 512},
}


def measure(name: str, device: str) -> dict[str, float]:
    """Return tokens per second by way, and ``seconds_to_compile`` of trtcache's two programs."""
    torch.manual_seed(0)
    kind, llm = getattr(transformers, name), dict[str, Any]()
    exec(definitions("docs/llm.md"), llm)  # noqa: S102  # our own document
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    model = kind(kind.config_class(**MODELS[name], **special)).eval().to(device)
    decoder = llm["Decoder"](model)
    prompt = torch.arange(1, 17, device=device).view(1, 16)

    def empty() -> Any:
        return llm["empty_cache"](model.config, LENGTH, device=device)

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        prefill, decode = llm["compile_decoder"](model, LENGTH, cache=folder, device=device)
        seconds = time.perf_counter() - start
    compiled = torch.compile(decoder, dynamic=False)
    ways: dict[str, tuple[Any, Any]] = {
        "eager": (decoder, decoder),
        "torch.compile": (decoder, compiled),
        "trtcache": (prefill, decode),
    }
    tokens = {way: llm["generate"](*pair, prompt, empty(), COUNT).tolist() for way, pair in ways.items()}
    if len({tuple(one) for one in tokens.values()}) > 1:
        raise SystemExit(f"{name}: the ways give other tokens: {tokens}")
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, pair in ways.items():
            cache = empty()
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            llm["generate"](*pair, prompt, cache, COUNT).tolist()
            found[way].append(COUNT / (time.perf_counter() - start))
    return {way: sorted(rates)[ROUNDS // 2] for way, rates in found.items()} | {"seconds_to_compile": seconds}


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    print("| model | eager | torch.compile | trtcache | trtcache / eager | both programs compiled in |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model_name in MODELS:
        row = measure(model_name, where)
        rates = " | ".join(f"{row[way]:.0f}/s" for way in ("eager", "torch.compile", "trtcache"))
        print(f"| {model_name} | {rates} | {row['trtcache'] / row['eager']:.2f} | {row['seconds_to_compile']:.0f} s |")

"""A Hugging Face pipeline whose model is compiled, with weights from a local folder or random ones.

python sentiment.py FOLDER "text"      # a folder with a model and its tokenizer
python sentiment.py                    # a small model with random weights: nothing is downloaded

"""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

import trtcache

LENGTH = 16


def small():
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "a", "good", "bad", "film"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106  # not a password
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]")  # noqa: S106
    config = BertConfig(
        vocab_size=6, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
    )
    return BertForSequenceClassification(config), tokenizer


def load(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    return model, AutoTokenizer.from_pretrained(folder)


if __name__ == "__main__":
    model, tokenizer = load(sys.argv[1]) if len(sys.argv) > 1 else small()
    text = sys.argv[2] if len(sys.argv) > 2 else "a good film"
    # One size for every text: each is padded or cut to it, so there is one engine.
    options = {"padding": "max_length", "truncation": True, "max_length": LENGTH}
    classify = pipeline("text-classification", model=model.eval(), tokenizer=tokenizer)
    eager = classify(text, **options)
    example = dict(tokenizer(text, return_tensors="pt", **options))
    forward = trtcache.compile(model, (), example, name="sentiment")
    with torch.inference_mode():
        model.forward = forward  # the pipeline needs the model's configuration and calls its forward
        answer = classify(text, **options)
    assert abs(answer[0]["score"] - eager[0]["score"]) < 1e-4
    print(forward.report.outcome, answer[0]["label"])

"""Causal language models: their cache in the output, and generation as in docs/llm.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from torch import nn
from transformers import DynamicCache

import trtcache
from tests.documents import definitions
from trtcache.lowering.model_state import preserve_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import RunPython

SIZES: dict[str, dict[str, int]] = {
    "LlamaForCausalLM": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "Qwen2ForCausalLM": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "GPT2LMHeadModel": {"hidden_size": 32, "num_hidden_layers": 2},
}
SLIDING = {"Gemma2ForCausalLM": {**SIZES["LlamaForCausalLM"], "head_dim": 8, "sliding_window": 8}}
"""Models with a layer that sees the last tokens only, fewer than the prompt has."""
DEFINITIONS = definitions("docs/llm.md")
PROMPT = torch.arange(1, 10).view(1, 9)


def language_model(name: str, seed: int = 0) -> Any:
    """Return a small model with random weights."""
    torch.manual_seed(seed)
    kind = getattr(transformers, name)
    sizes = {
        "num_attention_heads": 4,
        "vocab_size": 97,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return kind(kind.config_class(**sizes, **{**SIZES, **SLIDING}[name])).eval()


@pytest.fixture
def document() -> dict[str, Any]:
    """Return what the document defines."""
    names: dict[str, Any] = {}
    exec(DEFINITIONS, names)  # noqa: S102  # the document's own code
    return names


@pytest.mark.parametrize("name", SIZES)
def test_a_model_returns_its_cache(compiled: Callable[..., trtcache.CompiledModule], name: str) -> None:
    """The cache in the output is a ``DynamicCache`` with the model's keys and values, also on a hit."""
    model = language_model(name)
    expected = model(PROMPT)
    for _ in range(2):
        output = compiled(model, (PROMPT,))(PROMPT)
        torch.testing.assert_close(output.logits, expected.logits)
        assert type(output.past_key_values) is DynamicCache
        for layer, other in zip(output.past_key_values.layers, expected.past_key_values.layers, strict=True):
            torch.testing.assert_close(layer.keys, other.keys)
            torch.testing.assert_close(layer.values, other.values)


def test_a_cache_is_an_argument(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A ``DynamicCache`` is an argument of any length within the range, and errors name its tensors."""
    model = language_model("LlamaForCausalLM")
    token, sizes = PROMPT[:, :1], {2: torch.export.Dim.AUTO}

    @torch.no_grad()
    def cache(length: int) -> Any:
        return model(torch.ones((1, length), dtype=torch.long)).past_key_values

    shapes = {"input_ids": None, "past_key_values": [[sizes] * 2, [sizes] * 2]}
    module = compiled(model, (token,), {"past_key_values": cache(9)}, dynamic_shapes=shapes)
    for length in (9, 13):
        output = module(token, past_key_values=cache(length))
        torch.testing.assert_close(output.logits, model(token, past_key_values=cache(length)).logits)
        assert output.past_key_values.get_seq_length() == length + 1
    wrong = cache(9)
    wrong.layers[0].keys = wrong.layers[0].keys.double()
    with pytest.raises(trtcache.errors.InputError, match=r"past_key_values\[0\]\[0\]"):
        module(token, past_key_values=wrong)


@pytest.mark.parametrize("name", [*SIZES, *SLIDING])
def test_generation_equals_eager(
    compiled: Callable[..., trtcache.CompiledModule], document: dict[str, Any], name: str
) -> None:
    """Prefill and decode of the document give eager's 64 tokens, for prompts of several lengths and after a refit."""
    model, retrained = language_model(name), language_model(name, seed=1)
    document["trtcache"] = type("namespace", (), {"compile": staticmethod(compiled)})
    programs = document["compile_decoder"](model, 96)
    cache = document["empty_cache"](model.config, 96)
    for weights in (model, retrained):
        for prompt in (PROMPT, PROMPT[:, :4]):
            tokens = document["generate"](*programs, prompt, cache, 64)
            mask = torch.ones_like(prompt)
            expected = weights.generate(prompt, attention_mask=mask, max_new_tokens=64, do_sample=False)
            assert tokens.tolist() == expected[0, prompt.shape[1] :].tolist()
        for program in programs:
            program.refit(document["Decoder"](retrained).state_dict())


def test_a_second_process_generates_from_the_cache(run_python: RunPython, tmp_path: Path) -> None:
    """With another hash seed and builds forbidden, AOTInductor's programs are hits and give the same tokens."""
    code = f"""
{DEFINITIONS}
from tests.frontends.test_language_models import PROMPT, language_model
settings = {{"inductor": {{"cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": True}}}}
model = language_model("LlamaForCausalLM")
programs = compile_decoder(model, 32, backend="aot_inductor", cache={str(tmp_path)!r}, settings=settings)
print([program.report.partitions[0].outcome for program in programs])
print(generate(*programs, PROMPT, empty_cache(model.config, 32), 16).tolist())
print(model.generate(PROMPT, max_new_tokens=16, do_sample=False)[0, 9:].tolist())
"""
    outputs = []
    for forbid, seed in (("0", "1"), ("1", "2")):
        done = run_python(code, TRTCACHE_FORBID_BUILD=forbid, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr[-2000:]
        outputs.append(done.stdout.splitlines())
    assert outputs[0] == ["['built', 'built']", *[outputs[0][2]] * 2]
    assert outputs[1] == ["['hit', 'hit']", *[outputs[0][2]] * 2]


class Held(nn.Module):
    """Weights that plain objects hold as well: one whole, one row of it, and a buffer that is written to there."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))
        self.register_buffer("count", torch.zeros(3))
        self.held = {"weight": self.weight, "row": self.weight[1].detach(), "count": self.count}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.held["count"].add_(1)
        return x @ self.held["weight"].t() + self.held["row"].sum(), self.count * 1


def test_weights_that_plain_objects_hold_are_refitted(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A refit reaches a weight that the model reads from a dict, and a part of it; the export writes to nothing."""
    model = Held().eval()
    module = compiled(model, (torch.ones(1, 3),))
    assert model.count.tolist() == [0, 0, 0]
    assert [one.tolist() for one in module(torch.ones(1, 3))] == [[[6, 6]], [1, 1, 1]]
    module.refit({"weight": torch.full((2, 3), 2.0), "count": torch.full((3,), 5.0)})
    assert [one.tolist() for one in module(torch.ones(1, 3))] == [[[12, 12]], [6, 6, 6]]


class Anchors(nn.Module):
    """A head that keeps what it computed for the last shape, in an attribute, a list and a dict, as YOLO's does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shape: Any = None
        self.anchors = torch.empty(0)
        self.past: list[Any] = []
        self.options = type("Options", (), {})()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape != x.shape:
            self.shape, self.anchors = x.shape, torch.arange(x.shape[0]) * 2.0
            self.past.append(self.anchors)
            self.options.anchors = self.anchors
        return self.linear(x) + self.anchors[:, None]


def test_a_compile_leaves_the_model_as_it_was(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Attributes that the export assigned are as before: eager answers rightly, and a second compile works."""
    model, x = Anchors().eval(), torch.ones(3, 4)
    with pytest.warns(UserWarning, match="assigned during export"):
        first = compiled(model, (x,))
    assert (model.shape, model.past, vars(model.options), model.anchors.numel()) == (None, [], {}, 0)
    with pytest.warns(UserWarning, match="assigned during export"):
        second = compiled(model, (x,))
    expected = model(x)
    assert type(model.anchors) is torch.Tensor
    torch.testing.assert_close(first(x), expected)
    torch.testing.assert_close(second(x), expected)


def test_a_cache_that_torch_cannot_return_is_an_error(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The message for T5 names ``use_cache=False``, with which it compiles."""
    config = transformers.T5Config(d_model=16, num_layers=1, d_kv=4, d_ff=16, num_heads=2, vocab_size=32)
    model = transformers.T5ForConditionalGeneration(config).eval()
    given = {"input_ids": PROMPT, "decoder_input_ids": PROMPT}
    with pytest.raises(trtcache.errors.ExportError, match="use_cache=False"):
        compiled(model, (), given)
    output = compiled(model, (), {**given, "use_cache": False})(**given, use_cache=False)
    torch.testing.assert_close(output.logits, model(**given, use_cache=False).logits)


def _negated(weight: torch.Tensor) -> Any:
    return torch._neg_view(weight)


class Views(nn.Module):
    """A weight, and what a plain object holds of its memory."""

    def __init__(self, view: Any, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(6.0), persistent=persistent)
        self.held = {"view": view(self.weight)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.held["view"].sum() + self.weight[0] * 0


@pytest.mark.parametrize(
    "view", [_negated, lambda weight: weight.view(torch.int32), lambda weight: weight.view(2, 3)[:, 1]]
)
@pytest.mark.parametrize("persistent", [True, False])
def test_views_of_weights_are_right_or_refused(
    compiled: Callable[..., trtcache.CompiledModule], view: Any, *, persistent: bool
) -> None:
    """A view that no operator expresses is refused, unless no refit changes its weight; it is never another value."""
    model, x = Views(view, persistent=persistent).eval(), torch.zeros(1)
    try:
        module = compiled(model, (x,))
    except trtcache.errors.ExportError as error:
        assert persistent
        assert "shares memory with weight" in str(error)  # noqa: PT017  # both outcomes are right
        return
    torch.testing.assert_close(module(x), model(x))
    if persistent:
        retrained = Views(view)
        retrained.weight.add_(1)
        module.refit(retrained.state_dict())
        torch.testing.assert_close(module(x), retrained(x))


class Flat(nn.Module):
    """Two parameters in one memory, and a list of them, as recurrent layers have them."""

    def __init__(self) -> None:
        super().__init__()
        memory = torch.arange(9.0)
        self.first, self.second = nn.Parameter(memory[:6]), nn.Parameter(memory[6:])
        self.all = [self.first, self.second]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.all[0].sum() + self.all[1].sum()


def test_weights_in_one_memory_are_told_apart(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """The weight of the same place in the memory is meant, not the largest."""
    module = compiled(Flat().eval(), (torch.zeros(1),))
    assert module(torch.zeros(1)).item() == 36
    module.refit({"first": torch.ones(6), "second": torch.full((3,), 10.0)})
    assert module(torch.zeros(1)).item() == 36
    module.refit({"first": torch.zeros(6), "second": torch.full((3,), 10.0)})
    assert module(torch.zeros(1)).item() == 30


class Reassigned(nn.Module):
    """A counter that is assigned, and the old one in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.old = [self.count]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        return x * self.count - self.old[0]


def test_an_old_buffer_is_not_the_new_one(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """A program in which both would be one is refused."""
    with pytest.raises(trtcache.errors.ExportError, match="which forward assigns"):
        compiled(Reassigned().eval(), (torch.ones(1),))


class Slotted:
    """An object without a dict of attributes."""

    __slots__ = ("last",)


class Keeping(nn.Module):
    """What a call leaves in an ``OrderedDict`` of hooks, in the order of a dict, and in slots."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.turns = {"a": 1.0, "b": 2.0}
        self.slots = Slotted()
        self.traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.register_forward_hook(lambda module, args, output: output + 1)
        first = next(iter(self.turns))
        self.turns[first] = factor = self.turns.pop(first)
        self.slots.last = x * 2
        return self.linear(x) * factor


def test_hooks_order_and_slots_are_restored(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Eager answers after a compile as before it; a TorchScript submodule does no harm."""
    model, x = Keeping().eval(), torch.ones(1, 4)
    compiled(model, (x,))
    assert list(model.linear._forward_hooks.items()) == []
    assert list(model.turns) == ["a", "b"]
    assert not hasattr(model.slots, "last")
    torch.testing.assert_close(model(x), Keeping.forward(_copy_of(model), x))


class Doubled(list[int]):
    """A list whose iterator returns each element twice."""

    def __iter__(self) -> Iterator[int]:
        return (one for one in super().__iter__() for _ in range(2))


class SlottedModule(torch.nn.Module):
    """A module with a slot, and a list of its own kind."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen = "before"
        self.doubled = Doubled([1, 2])


@pytest.mark.usefixtures("own_threads_only")
def test_slots_and_lists_of_other_kinds_are_restored() -> None:
    """Those of a module, too; a list has the elements that it had, whatever its iterator returns."""
    model = SlottedModule()
    with preserve_state(model):
        model.seen = "during"
        model.doubled.append(3)
    assert model.seen == "before"
    assert list.__repr__(model.doubled) == "[1, 2]"


def _copy_of(model: Keeping) -> Keeping:
    other = Keeping().eval()
    other.linear.load_state_dict(model.linear.state_dict())
    return other

"""Eleven models, each left in torch in several ways: one process compiles all cases of a model.

``python -m tests.partition.cases MODEL CACHE`` writes a line of JSON for each case.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim

import trtcache
from tests.keys import architectures
from tests.partition.parts import double
from trtcache.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keys.architectures import Call

CASES = ("nothing", "softmax", "blocks", "custom")
"""No forced operator; softmax in torch; every second block in torch; an operator that no backend knows."""

_WITHOUT_SOFTMAX = {"resnet": "aten.relu", "crepe": "aten.relu", "voice_encoder": "aten.relu"}
_BATCHES = (2, 5)


def minilm() -> Call:
    """The sentence embedder of the demo, with its weights."""
    from trtcache_cli.demo_embedder import load_embedder, tokenize

    ids, mask = tokenize()
    return load_embedder(), (ids[:2], mask[:2])


MODELS = {**architectures.MODELS, "minilm": minilm}


def called(name: str) -> Call:
    """Return a model, in eval mode, and arguments, all of which the name decides."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    return model.eval(), args


@dataclass(frozen=True)
class Outcome:
    """What became of a case: engines, nodes in torch, how far off at most, hits, and whether the batch varied."""

    model: str
    case: str
    engines: int
    in_torch: int
    off_by: float
    built: int
    dynamic: bool


def outcomes(name: str, cache: str) -> Iterator[Outcome]:
    """Compile each case of a model and compare it with eager torch."""
    for case in CASES:
        model, args = called(name)
        args = tuple(one[:1].expand(2, *one.shape[1:]).contiguous() if one.shape[0] == 1 else one for one in args)
        settings = _forced(name, case, model)
        module, dynamic = _compiled(model, args, cache, settings)
        report = module.report
        yield Outcome(
            name,
            case,
            len(report.partitions),
            len(report.left),
            max(_off_by(model, module, _batch(args, size)) for size in (_BATCHES if dynamic else _BATCHES[:1])),
            sum(one.outcome == "built" for one in report.partitions),
            dynamic,
        )


def _forced(name: str, case: str, model: nn.Module) -> dict[str, Any]:
    """Return the settings of a case, and put into the model what it needs."""
    if case == "softmax":
        if name in _WITHOUT_SOFTMAX:
            return {"torch_executed_ops": [_WITHOUT_SOFTMAX[name]]}
        transformer: Any = model.bert if name == "minilm" else model.model
        transformer.set_attn_implementation("eager")
        return {"torch_executed_ops": ["aten.softmax"]}
    if case == "blocks":
        return {"torch_executed_modules": [path for path, _ in _blocks(model)][1::2]}
    if case == "custom":
        blocks = _blocks(model)
        blocks[(len(blocks) - 1) // 2][1].register_forward_hook(_doubled)
    return {}


def _blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the longest list of modules in a model, or else its children, with their paths."""
    lists = [(path, one) for path, one in model.named_modules() if isinstance(one, nn.ModuleList)]
    if lists:
        path, longest = max(lists, key=lambda pair: len(pair[1]))
        return [(f"{path}.{place}", one) for place, one in enumerate(longest)]
    return list(model.named_children())


def _doubled(_module: nn.Module, _args: Any, output: Any) -> Any:
    return double(output) if isinstance(output, torch.Tensor) else (double(output[0]), *output[1:])


def _compiled(
    model: nn.Module, args: tuple[torch.Tensor, ...], cache: str, settings: dict[str, Any]
) -> tuple[trtcache.CompiledModule, bool]:
    batch = Dim("batch", min=2, max=8)
    try:
        shapes = tuple({0: batch} for _ in args)
        return trtcache.compile(model, args, dynamic_shapes=(shapes,), cache=cache, settings=settings), True
    except ExportError:
        try:
            shapes = tuple({0: batch} for _ in args)
            return trtcache.compile(model, args, dynamic_shapes=shapes, cache=cache, settings=settings), True
        except ExportError:
            return trtcache.compile(model, args, cache=cache, settings=settings), False


def _batch(args: tuple[torch.Tensor, ...], size: int) -> tuple[torch.Tensor, ...]:
    return tuple(one.repeat((size + 1) // 2, *(1,) * (one.dim() - 1))[:size] for one in args)


def _off_by(model: nn.Module, module: trtcache.CompiledModule, args: tuple[torch.Tensor, ...]) -> float:
    with torch.no_grad():
        expected = model(*args)
    return float((module(*args) - expected).abs().max() / expected.abs().max())


if __name__ == "__main__":
    torch.set_num_threads(1)
    for outcome in outcomes(*sys.argv[1:]):
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
        sys.stdout.flush()

"""What enters a key is decided once for each field: a new one without a decision fails here."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import torch

from trtcache.compiler import build
from trtcache.config.backend_settings import NOT_IN_KEY, TensorRTSettings
from trtcache.settings import AFTER_THE_KEY, AT_RUN_TIME, IN_THE_GRAPH, Settings
from trtcache.target import Gpu, Target

IN_THE_KEY = {"inductor", "operator_versions"}
"""Fields of ``Settings`` that the key has by themselves."""

WHERE_GIVEN: dict[str, object] = {
    "autocast": "bf16",
    "autocast_exclude": ["aten.exp"],
    "tensorrt": {"optimization_level": 1},
    "weights": "frozen",
}
"""Fields that the key has where they say something, each with a value that does."""

LEFT_OUT = {
    "torch_executed_modules": "marks nodes, and an engine has none that is marked",
    "torch_executed_ops": "marks nodes, and an engine has none that is marked",
    "min_block_size": "decides which nodes an engine has, and they are in its graph's digest",
    "require_full_compilation": "decides whether there is an engine at all",
    "build_processes": "says how many parts are built at once",
    "on_build_failure": "decides what becomes of a part that has no engine",
    "threads": "says how engines run; their code is built for any number of threads",
    "on_miss": "decides which process builds",
    "detach": "decides how long that process lives",
}
"""Fields that the settings' part of the key leaves out, and why that cannot give two builds one key."""


def test_every_setting_is_in_the_key_unless_it_is_decided_otherwise() -> None:
    """Add a new field of ``Settings`` to one of the lists above, with a test of what it does to keys."""
    own = {one.name for one in fields(Settings)} - {"backends"}  # tests/backends/test_backend_settings.py
    assert own == IN_THE_KEY | set(WHERE_GIVEN) | set(LEFT_OUT)
    assert set(Settings().document()) == IN_THE_KEY
    for name, value in WHERE_GIVEN.items():
        assert Settings.of({name: value}).document() == {**Settings().document(), name: value}
    assert set(LEFT_OUT) == IN_THE_GRAPH | AFTER_THE_KEY | AT_RUN_TIME


def test_every_setting_of_tensorrt_is_in_the_key() -> None:
    """Each field that is given is in the key under its name, but what only says which entries are taken."""
    given = {
        **dict.fromkeys(("optimization_level", "max_aux_streams", "avg_timing_iterations"), 1),
        **dict.fromkeys(("refit", "strip", "version_compatible", "tf32", "sparse_weights"), True),
        "workspace": 1024,
        "tiling": "fast",
        "profiling_verbosity": "detailed",
    }
    assert set(given) | NOT_IN_KEY == {one.name for one in fields(TensorRTSettings)}
    assert TensorRTSettings.of({"compatible": "capability"}).document() == {}
    for name, value in given.items():
        assert TensorRTSettings.of({name: value}).document() == {name: value}


def test_every_part_of_a_key_is_documented() -> None:
    """docs/keys.md has a row for each part of the document, and for nothing else."""
    key, _ = build.key_and_graph(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)))
    text = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
    section = text.partition("## The parts")[2].partition("## The graph")[0]
    parts = key.document["parts"]
    assert isinstance(parts, dict)
    conditional = {"guards", "views"}  # a program that was exported for all sizes has none, and returns new tensors
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(parts) | conditional


def test_every_field_of_a_target_is_in_the_key() -> None:
    """A target is described by what decides where an artifact runs, and by nothing else."""
    gpu = Gpu(**{one.name: 1 for one in fields(Gpu)})
    target = Target("linux-x86_64", "cuda", "plan", (), "8.9", gpu)
    assert set(target.document()) == {one.name for one in fields(Target)}

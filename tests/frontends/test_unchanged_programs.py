"""An unchanged generative model: compiling it again adds nothing to the store, in this process or in another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import transformers

from tests.direct.stored import install_stored
from tests.effort import tries

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunPython

PROCESSES, COMPILES = tries(2, 6), tries(3, 7)

COMPILE = """
import json, torch, transformers, trtcache
from trtcache.store.disk import DiskStore

ids = torch.arange(1, 10).view(1, 9)

def run(direct):
    model = transformers.AutoModelForCausalLM.from_pretrained({folder!r}).eval()
    assert model.can_generate() and model.generation_config.max_new_tokens == 2
    module = trtcache.compile(model, (ids,), backend="stored", cache=f"{root}/{{direct}}", direct=direct)
    torch.testing.assert_close(module(ids).logits, model(ids).logits)
    model.generate(ids)
    return module.report.route

found = {{}}
for direct, times in (("off", {times}), ("on", 2)):
    routes = [run(direct) for _ in range(times)]
    found[direct] = [routes, sorted(entry.digest for entry in DiskStore.open(f"{root}/{{direct}}").scan())]
print(json.dumps(found))
"""


def save_model(folder: Path) -> None:
    """Save a small model with random weights and a configuration of its generation."""
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=50, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.generation_config.max_new_tokens = 2
    model.generation_config.do_sample = False
    model.save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.torture
def test_compiles_in_other_processes_add_no_entry(run_python: RunPython, tmp_path: Path) -> None:
    """Under two hash seeds (torture: six), with new objects and a generation each time; entries of all kinds count."""
    save_model(tmp_path / "model")
    site = install_stored(tmp_path / "site")
    code = COMPILE.format(root=tmp_path, folder=str(tmp_path / "model"), times=COMPILES)
    runs = []
    for seed in range(PROCESSES):
        done = run_python(code, PYTHONHASHSEED=str(seed), PYTHONPATH=f"{site}:.")
        assert done.returncode == 0, done.stderr[-2000:]
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    assert sum(len(routes) for one in runs for routes, _ in one.values()) == PROCESSES * (COMPILES + 2)
    for direct, known in (("off", {"alias"}), ("on", {"alias", "direct"})):  # direct mode may refuse a configuration
        first, *others = [route for one in runs for route in one[direct][0]]
        assert first == "lowered"
        assert set(others) <= known
        entries = runs[0][direct][1]
        assert entries
        assert all(one[direct][1] == entries for one in runs)

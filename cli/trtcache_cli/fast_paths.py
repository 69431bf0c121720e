"""The child process of ``trtcache doctor`` that tries key aliases and direct mode: nothing is built.

It prints a line of JSON: for each fast path why it does not work here, or an empty string.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import tempfile
from pathlib import Path

from trtcache.cache import Cache
from trtcache.compiler.alias_lookup import AliasLookup
from trtcache.config.environment import Config
from trtcache.frontends.exported import ModuleSource
from trtcache.frontends.resolve import resolve
from trtcache.frontends.source import CompileOptions

_MODULE = "trtcache_doctor_model"
_MODEL = '''"""A model as users write them: its class is in a file of its own."""

import torch

SCALE = 2.0


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)) * SCALE
'''


def try_fast_paths() -> dict[str, str]:
    """Export and lower a small model, store its key alias and manifest, and find both again.

    Returns:
        For ``key aliases`` and ``direct mode`` why it does not work here; an empty string where it does.
    """
    import torch

    messages = _Messages()
    log = logging.getLogger("trtcache.compiler.alias_lookup")
    log.addHandler(messages)
    log.setLevel(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="trtcache-doctor-") as folder:
        (Path(folder) / f"{_MODULE}.py").write_text(_MODEL, encoding="utf-8")
        sys.path.insert(0, folder)
        model = importlib.import_module(_MODULE).Model().eval()
        cache, options = Cache(config=Config(Path(folder) / "cache")), CompileOptions("auto")

        def source() -> ModuleSource:
            found = resolve(model, (torch.ones(2, 4),), name="doctor", direct="on", cache=cache)
            assert isinstance(found, ModuleSource)  # noqa: S101  # that is what a module is
            return found

        first = source()
        first.fingerprint()
        exported = first.export(options)
        lookup = AliasLookup.of(exported, options, cache)
        if lookup is None:
            return {"key aliases": messages.last, "direct mode": "it needs key aliases"}
        lookup.store(exported.request(options))
        again = AliasLookup.of(exported, options, cache)
        if not lookup.is_stored or again is None or again.key != lookup.key:
            return {"key aliases": messages.last or "it is not stored", "direct mode": "it needs key aliases"}
        first.store_manifest(exported, has_alias=True)
        second = source()
        known = second.fingerprint()
        if first.direct_mode is None or second.direct_mode is None:
            return {"key aliases": "", "direct mode": first.direct_off}
        stored = first.direct_mode.outcome
        why = stored if stored.startswith("off: ") else second.direct_mode.explain()
        return {"key aliases": "", "direct mode": "" if known else why}


class _Messages(logging.Handler):
    """Keeps the last message of a logger."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.last = record.getMessage()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(try_fast_paths()) + "\n")

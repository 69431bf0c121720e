"""Build process: it reads paths of folders from standard input, one per line, and answers each with a line of JSON.

A folder contains the members of a program and a description of the request. The worker rebuilds the program from them
and computes its key. It builds the engine only if the key equals that of the requesting process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MEMBERS = "members"
REQUEST = "request.json"


def main() -> None:
    """Answer until there is no more input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep builders' output out of the answers
    for line in sys.stdin:
        answers.write(json.dumps(_answer(Path(line.rstrip("\n")))) + "\n")
        answers.flush()


def _answer(folder: Path) -> dict[str, Any]:
    from trtcache.errors import BuildError, TrtcacheError

    try:
        return _build(folder)
    except BuildError as error:
        return {"error": error.why}
    except (TrtcacheError, ValueError) as error:  # here only, as far as is known: the requesting process tries itself
        return {"mismatch": str(error)}


def _build(folder: Path) -> dict[str, Any]:
    import torch

    from trtcache.backends import registry
    from trtcache.backends.calls import build_artifact
    from trtcache.compiler.stored_program import rebuild_program
    from trtcache.frontends.request import make_request
    from trtcache.settings import Settings
    from trtcache.target import Target

    request = json.loads((folder / REQUEST).read_text())
    members = {path.name: path.read_bytes() for path in (folder / MEMBERS).iterdir()}
    device = torch.device(request["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    description = {
        "name": request["name"],
        "pipeline": request["pipeline"],
        "hints": request["hints"],
        "device": device,
    }
    program = rebuild_program(members, **description)
    settings = Settings.of(request["settings"])
    target = Target(**{**request["target"], "instruction_sets": tuple(request["target"]["instruction_sets"])})
    backend = registry.find(request["backend"], device.type)
    engine_request = make_request(program, backend, settings, target)
    if request["example_sizes"]:
        engine_request = engine_request.with_example_sizes(request["example_sizes"])
    if getattr(engine_request.key, "digest", engine_request.key) != request["key"]:
        raise ValueError(f"its key is {engine_request.key} here")
    artifact = build_artifact(backend, program, settings, target, folder)
    for name, content in artifact.members.items():
        (folder / name).write_bytes(content)
    return {"engine": str(artifact.engine), "members": sorted(artifact.members), "steps": dict(artifact.steps)}


if __name__ == "__main__":
    main()

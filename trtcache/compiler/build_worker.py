"""The process that builds: it reads folders from its input, one a line, and answers each with a line of JSON.

In a folder are the members of a program, and what its engine is for. The program is rebuilt from them and its key made
anew: only if that is the key of the process that asked is anything built, for then it is the same engine.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MEMBERS = "members"
ASKED = "asked.json"


def main() -> None:
    """Answer until there is no more input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what builders print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(Path(line.rstrip("\n")))) + "\n")
        answers.flush()


def _answer(folder: Path) -> dict[str, Any]:
    from trtcache.errors import TrtcacheError

    try:
        return _build(folder)
    except TrtcacheError as error:
        return {"error": getattr(error, "why", str(error))}
    except ValueError as error:
        return {"unlike": str(error)}


def _build(folder: Path) -> dict[str, Any]:
    import torch

    from trtcache.backends import registry
    from trtcache.compiler.stored_program import rebuilt
    from trtcache.frontends.request import make_request
    from trtcache.settings import Settings
    from trtcache.target import Target

    asked = json.loads((folder / ASKED).read_text())
    members = {path.name: path.read_bytes() for path in (folder / MEMBERS).iterdir()}
    device = torch.device(asked["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    how = {"name": asked["name"], "pipeline": asked["pipeline"], "hints": asked["hints"], "device": device}
    program = rebuilt(members, **how)
    settings = Settings.of(asked["settings"])
    target = Target(**{**asked["target"], "instruction_sets": tuple(asked["target"]["instruction_sets"])})
    backend = registry.find(asked["backend"], device.type)
    request = make_request(program, backend, settings, target)
    if getattr(request.key, "digest", request.key) != asked["key"]:
        raise ValueError(f"its key is {request.key} here")
    made = backend.build(program, settings, target, folder)
    for name, content in made.members.items():
        (folder / name).write_bytes(content)
    return {"engine": str(made.engine), "members": sorted(made.members)}


if __name__ == "__main__":
    main()

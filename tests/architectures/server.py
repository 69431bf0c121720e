"""A process that imports a group's libraries once, and forks a child for each step of an architecture.

A line of JSON comes in for each step and one goes out with its row. The child has everything imported that a compile
needs, which takes longer than many a compile, and whatever happens to it the next one starts from the same state.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

_IMPORTS = {
    "transformers": ("transformers", "transformers.modeling_utils"),
    "timm": ("timm",),
    "torchvision": ("torchvision",),
    "diffusers": ("diffusers", "diffusers.models.modeling_utils"),
    "others": ("torchaudio",),
}


def main() -> None:
    """Serve steps until the input ends."""
    group, cache = sys.argv[1], Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    ours = ("torch._inductor.compile_fx", "tests.architectures.steps", "tests.direct.stored")
    for module in ("torch", "trtcache", *ours, *_IMPORTS[group]):
        importlib.import_module(module)
    sys.modules["tests.architectures.steps"].warm_up(cache)
    for line in sys.stdin:
        answers.write(json.dumps(serve(json.loads(line))) + "\n")
        answers.flush()


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Run a step in a child, and return its row, or how the child ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(request, writer)
    os.close(writer)
    content, ends = b"", time.monotonic() + request["timeout_s"]
    while (left := ends - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        if not (chunk := os.read(reader, 65536)):
            break
        content += chunk
    os.close(reader)
    is_late = time.monotonic() >= ends
    if is_late:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if content.endswith(b"\n"):
        row: dict[str, Any] = json.loads(content)
        return row
    why = f"longer than {request['timeout_s']:.0f} s" if is_late else f"ended with status {status}"
    return {"died": why}


def _child(request: dict[str, Any], writer: int) -> None:
    from tests.architectures import steps

    os.setpgid(0, 0)  # compilers that it starts end with it
    code = 1
    try:
        trial = steps.Trial(request["name"], request.get("backend", "aot_inductor"), Path(request["cache"]))
        if request["step"] == "first":
            row = steps.compile_first(trial)
        elif request["step"] == "record":
            row = steps.record(trial)
        elif request["step"] == "verify":
            row = steps.verify(trial)
        else:
            os.environ["TRTCACHE_FORBID_BUILD"] = "1"
            row = steps.hit_second(trial, is_dynamic=request["is_dynamic"])
        os.write(writer, json.dumps(row).encode() + b"\n")
        code = 0
    except BaseException as error:  # noqa: BLE001  # the child must not return into the server's loop
        traceback.print_exc()
        line = " ".join(str(error).split())[:200]
        os.write(writer, json.dumps({"died": f"{type(error).__name__}: {line}"}).encode() + b"\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()

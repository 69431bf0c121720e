"""A FastAPI server that loads its engine from the cache when it starts, and refits it on SIGHUP.

python server.py --save        # write the first weights.safetensors; a training job does it from then on
python server.py --warm        # put the engine into the cache, such as for an image
uvicorn server:app
kill -HUP PID                  # after weights.safetensors was replaced

"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch
from fastapi import FastAPI, HTTPException
from safetensors.torch import load_file, save_file

import trtcache

WEIGHTS = Path("weights.safetensors")
log = logging.getLogger("uvicorn.error")


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def load() -> trtcache.CompiledModule[torch.Tensor]:
    """Return the compiled model: from the cache, or built, which takes some seconds."""
    model = Classifier().eval()
    model.load_state_dict(load_file(WEIGHTS))
    rows = torch.export.Dim("rows", min=1, max=64)
    return trtcache.compile(model, (torch.zeros(4, 8),), dynamic_shapes=({0: rows},), name="classifier")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    fast = app.state.fast = load()
    log.info("engine: %s", fast.report.outcome)

    def refit() -> None:
        # Calls go on while it runs: each uses all of the old weights, or all of the new ones.
        try:
            log.info("%s", fast.refit(WEIGHTS))
        except trtcache.TrtcacheError as error:
            log.warning("the old weights stay in use: %s", error)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, refit))
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/classify")
def classify(rows: list[list[float]]) -> list[list[float]]:
    try:
        answer: list[list[float]] = app.state.fast(torch.tensor(rows)).tolist()
    except trtcache.errors.InputError as error:
        raise HTTPException(422, str(error)) from None
    return answer


if __name__ == "__main__" and "--save" in sys.argv:
    # A new file under another name, then a rename: the server has mapped the old file.
    save_file(Classifier().state_dict(), "weights.new")
    Path("weights.new").replace(WEIGHTS)
if __name__ == "__main__" and "--warm" in sys.argv:
    fast = load()
    fast.wait()  # with TRTCACHE_ON_MISS=background, the build would end with this process
    print(fast.report)

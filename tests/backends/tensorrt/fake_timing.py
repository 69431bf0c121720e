"""A builder's configuration as far as timing caches go: the boundary to a TensorRT that cannot run here."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from trtcache.backends.tensorrt.flavour import Flavour
from trtcache.backends.tensorrt.tuning import TimingCache
from trtcache.cache import Cache
from trtcache.target import Gpu

GPU = Gpu("NVIDIA L4", "8.9", 58, 22)


class FakeFlavour(Flavour):
    """TensorRT of a version, whatever is installed."""

    version = "10.15.1.29"  # type: ignore[assignment]  # a property of the class above
    cuda = 13  # type: ignore[assignment]  # likewise


class NewerFlavour(FakeFlavour):
    """TensorRT of the next version."""

    version = "10.16.0.1"  # type: ignore[assignment]  # as above


TENSORRT = FakeFlavour("tensorrt", "TensorRT", "tensorrt", False, {}, times_kernels=True)
NEWER = NewerFlavour("tensorrt", "TensorRT", "tensorrt", False, {}, times_kernels=True)


class FakeTimings:
    """``ITimingCache``: measured times by kernel, of one device."""

    def __init__(self, device: str, times: dict[str, float]) -> None:
        self.device, self.times = device, dict(times)

    def serialize(self) -> bytes:
        return json.dumps([self.device, self.times], sort_keys=True).encode()

    def combine(self, input_cache: FakeTimings, ignore_mismatch: bool) -> bool:
        assert input_cache is not self  # TensorRT-RTX never returns from that
        if input_cache.device != self.device and not ignore_mismatch:
            return False
        self.times = input_cache.times | self.times
        return True


class FakeConfig:
    """``IBuilderConfig``: takes no cache of another device, and measures what its cache lacks."""

    def __init__(self, device: str = "L4") -> None:
        self.device = device
        self.cache: FakeTimings | None = None
        self.measured: list[str] = []

    def create_timing_cache(self, serialized: bytes) -> FakeTimings | None:
        if not serialized:
            return FakeTimings(self.device, {})
        try:
            device, times = json.loads(serialized)
        except ValueError:
            return None
        return FakeTimings(device, times)

    def set_timing_cache(self, cache: FakeTimings, ignore_mismatch: bool) -> bool:
        if cache.device != self.device and not ignore_mismatch:
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> FakeTimings | None:
        return self.cache

    def build(self, *kernels: str) -> None:
        """Measure the kernels that the cache does not know."""
        assert self.cache is not None
        self.measured = [name for name in kernels if name not in self.cache.times]
        self.cache.times |= dict.fromkeys(self.measured, 1.0)


def built(cache: Cache, *kernels: str, device: str = "L4", wait_s: float = 0.0, flavour: Any = TENSORRT) -> list[str]:
    """Build something with these kernels, and return those that had to be measured."""
    config: Any = FakeConfig(device)
    timings = TimingCache(config, flavour, GPU, cache)
    config.build(*kernels)
    time.sleep(wait_s)
    timings.keep()
    return config.measured


if __name__ == "__main__":
    root, prefix = sys.argv[1:3]
    for number in range(10):
        built(Cache(root), f"{prefix}{number}")

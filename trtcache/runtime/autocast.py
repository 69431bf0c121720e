"""The autocast in which a model was compiled, for what runs or compiles it again.

The engine has the casts of that time, whatever the caller of a call has switched on.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

from trtcache.config.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator


@frozen_dataclass
class Autocast:
    """A thread's state of ``torch.autocast``.

    Attributes:
        dtypes: the device types for which it is on, with their dtypes.
        cached: whether it caches casts.
    """

    dtypes: tuple[tuple[str, torch.dtype], ...]
    cached: bool

    @classmethod
    def here(cls) -> Autocast:
        """Return this thread's state."""
        device_types = torch._C._autocast_supported_devices() if torch._C._is_any_autocast_enabled() else []
        dtypes = [(one, torch.get_autocast_dtype(one)) for one in device_types if torch.is_autocast_enabled(one)]
        return cls(tuple(dtypes), torch.is_autocast_cache_enabled())

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Set this state for the block."""
        if not self.dtypes and not torch._C._is_any_autocast_enabled():
            yield
            return
        with torch._C._DisableAutocast(), ExitStack() as stack:
            for device_type, dtype in self.dtypes:
                stack.enter_context(torch.autocast(device_type, dtype=dtype, cache_enabled=self.cached))
            yield

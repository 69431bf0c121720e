"""A plan that was taken from the cache, in a process that may have no GPU to run it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtcache.errors import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from trtcache.backends.tensorrt.flavour import Flavour


class PlanEngine:
    """A verified plan and the weights for it.

    A plan is made and kept on machines that cannot run it, so having one is no error; calling it there is.
    """

    def __init__(self, flavour: Flavour, plan: bytes | memoryview, weights: Mapping[str, torch.Tensor]) -> None:
        """Keep a plan."""
        self._flavour = flavour
        self.plan = plan
        self.weights = weights

    def refit(self, weights: Mapping[str, torch.Tensor]) -> PlanEngine:  # noqa: ARG002  # nothing is refitted
        """Return the same plan with other weights.

        Raises:
            NoDeviceError: a refit is the work of a GPU.
        """
        raise self._nowhere("it is refitted on its GPU")

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:  # noqa: ARG002  # nothing runs
        """Raise.

        Raises:
            NoDeviceError: there is nothing to run it on.
        """
        raise self._nowhere("it runs on its GPU")

    def _nowhere(self, what: str) -> NoDeviceError:
        why = f"{what}; this version of trtcache builds and keeps plans, and does not run them yet"
        return NoDeviceError(self._flavour.name, "a plan", why)

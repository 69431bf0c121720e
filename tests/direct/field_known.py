"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG = (  # how an export differs from a replay
    *("asks a weak reference to a dropped result: A is another", "asks a finalizer of a result: A is another"),
    "asks a weak reference to a dropped result, after a collection: A is another",
    "asks for the fake mode's symbols: B is another",
)
"""Scenarios in which it hits and answers as the old program."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the weight comes after the bias then",
    "harmless: torch.compile of the model": "weights are marked for Dynamo, which is another key",
    "torch.backends.opt_einsum disabled": "the operations of an einsum have another order",
    "sizes: a guard that is written otherwise": "guards are compared as texts",
    "harmless: another momentum in eval mode": "it is an argument of the operator",
    **{
        f"decomposition replaced {name}": "torch's tables count as a whole: Inductor may use what the export does not"
        for name in ("hardtanh.default", "rsub.Scalar", "softplus.default")
    },
}
"""Harmless changes that it misses, and why."""

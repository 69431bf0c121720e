"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

_QUESTIONS = (  # how an export differs from a run on fake tensors
    *("asks a weak reference to a dropped result: A is another", "asks a finalizer of a result: A is another"),
    "asks a weak reference to a dropped result, after a collection: A is another",
    *("asks the version of a weight: B is another", "asks an input's version: B is another"),
    *("asks whether fx traces: A is another", "asks for two modes of functions: A is another"),
    "asks for the fake mode's symbols: B is another",
)
WRONG = (
    *_QUESTIONS,
    "two overloads have exchanged their _op",  # inside of torch's operators
    *(f"F.relu is recreated with other globals, used {how}" for how in ("by nn.ReLU", "directly")),
)
"""Scenarios in which it hits and answers as the old program."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the weight comes after the bias then",
    "harmless: torch.compile of the model": "weights are marked for Dynamo, which is another key",
    "torch.backends.opt_einsum disabled": "the operations of an einsum have another order",
    "sizes: a guard that is written otherwise": "guards are compared as texts",
    "harmless: another momentum in eval mode": "it is an argument of the operator",
    "asks the version of a weight: nothing has changed": "an export has another answer than a run on fake tensors",
    **{
        f"decomposition replaced {name}": "torch's tables count as a whole: Inductor may use what the export does not"
        for name in ("hardtanh.default", "rsub.Scalar", "softplus.default")
    },
}
"""Harmless changes that it misses, and why."""

"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG = ("asks the predispatch key: A is another",)  # which is active in an export, and not in a replay
"""Descriptions of scenarios in which it hits and answers as the old program."""

SAME_VALUES = frozenset(
    {
        "arithmetic: a maximum of two sizes",
        "layers on sizes: a maximum of two dynamic dims, whose order is another",
        "layers on sizes: a comparison as a factor, whose sides are exchanged",
        "layers on sizes: a conditional by its negation",
        "another expression: a maximum of a maximum",
        "another expression: a minimum's order of two sizes",
        "another expression of values: two items are multiplied in another order",
        "another expression of values: a maximum of two items in another order",
    }
)
"""Scenarios in which an integer is computed in another way: the program has another key, and the same values."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the weight comes after the bias then",
    "surgery without effect: weight_norm is put on and removed": "as above",
    "surgery without effect: a dropout of rate 0 is inserted behind the last block": "it calls an operator: alias",
    "harmless: torch.compile of the model": "weights are marked for Dynamo, which is another key",
    "torch.backends.opt_einsum disabled": "the operations of an einsum have another order",
    "sizes: a guard that is written otherwise": "guards are compared as texts",
    **dict.fromkeys(
        (
            "branch: torch._check of what is known",
            "branch: an error for long inputs that the range excludes",
            "settings: the limit of a branch is an attribute and stays below the minimum",
            "settings: a limit comes from the environment and is far above the range",
            "values: a known relation of values decides",
        ),
        "as above, also those that the range of a size implies",
    ),
    **dict.fromkeys(
        ("floats of sizes: a third with 16 digits", "floats of sizes: a float offset of zero"),
        "direct mode is off: floats from symbolic sizes",
    ),
    "harmless: another momentum in eval mode": "it is an argument of the operator",
    **{
        f"decomposition replaced {name}": "torch's tables count as a whole: Inductor may use what the export does not"
        for name in ("hardtanh.default", "rsub.Scalar", "softplus.default")
    },
}
"""Their descriptions, and why."""

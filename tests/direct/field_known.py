"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG = (
    "audit hook in C beside a library's",  # alone it is noticed
)
"""Scenarios in which it hits and answers as the old program."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the layer has an empty ModuleDict and another class",
    "harmless: an equal config is built in another order of assignment": "the order of an instance's attributes counts",
    "local variable of an unrelated method edited": "the code of all methods of the model's class counts",
    "sorted difference is deterministic": "strings that are sorted by a key have the set's order where keys are equal",
    "harmless: stdout is a StringIO": "it has no encoding: print cannot raise for a text there",
    "harmless: torch.compile of the model": "dynamo patches __init__ of the model's classes",
    **{
        f"decomposition replaced {name}": "torch's tables count as a whole: Inductor may use what the export does not"
        for name in ("hardtanh.default", "rsub.Scalar", "softplus.default")
    },
}
"""Harmless changes that it misses, and why."""

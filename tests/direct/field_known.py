"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG: tuple[str, ...] = (
    "a cached pattern of re is exchanged",
    "a name of a NumPy type is another type",
    "an overload's _op is another's",
    "what a cached function of torch.overrides returned is edited",
    "a list that a cached function of torch returned is edited",
    "an option's default is edited inside of torch's configuration",
)
"""Scenarios in which it hits and answers as the old program."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the layer has an empty ModuleDict and another class",
    "harmless: stdout is a StringIO": "it has no encoding: print cannot raise for a text there",
    "harmless: torch.compile of the model": "dynamo patches __init__ of the model's classes",
}
"""Harmless changes that it misses, and why."""

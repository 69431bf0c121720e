"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG: tuple[str, ...] = ()
"""Scenarios in which it hits and answers as the old program."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the layer has an empty ModuleDict and another class",
    "harmless: stdout is a StringIO": "it has no encoding: print cannot raise for a text there",
    "harmless: torch.compile of the model": "dynamo patches __init__ of the model's classes",
}
"""Harmless changes that it misses, and why."""

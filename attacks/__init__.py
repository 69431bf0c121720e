"""Attempts to make a cache give somebody what he should not get. Each has to fail: ``python -m attacks`` runs them all.

An attack is a file with a function ``attack(folder)``. It does in an empty folder what its adversary can do, raises
``Succeeded`` if he gets anywhere, and else returns a sentence that says what happened. ``SECURITY.md`` says which
promise each of them is about.
"""

from __future__ import annotations

NAMES = (
    "bombs",
    "carried_over",
    "exchanged_names",
    "hostile_bucket",
    "hostile_index",
    "hostile_names",
    "hostile_remote",
    "poisoning",
    "swap_on_load",
    "swapped_entries",
    "symlink_races",
)

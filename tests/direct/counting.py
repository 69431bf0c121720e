"""A module whose global a model changes."""

COUNT = 0

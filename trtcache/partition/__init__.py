"""Partitioning of lowered programs into engines and torch."""

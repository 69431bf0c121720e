"""Passes, one file for each family."""

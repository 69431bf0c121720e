"""Builds in the background."""

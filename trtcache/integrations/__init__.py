"""Integrations with other libraries: their programs use the cache without changes."""

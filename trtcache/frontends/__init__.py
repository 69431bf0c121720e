"""Frontends: sources for each kind of model, from modules and exported programs to files."""

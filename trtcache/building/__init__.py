"""Builds parts of a program side by side, each in a process of its own."""

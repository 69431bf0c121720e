"""Artifact files, the store that holds them and its index. Imports neither torch nor an engine builder."""

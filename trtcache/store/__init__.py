"""Artifact files, the disk store that holds them, and the index made from them. Imports neither torch nor an engine builder."""

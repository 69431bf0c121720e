"""Weights: slots, recipes, fingerprints and archives."""

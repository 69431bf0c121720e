"""Engines for Dynamo graphs, behind ``torch.compile``."""

"""Frontends: what turns a model that was handed over into a program, or recognises one that is known."""

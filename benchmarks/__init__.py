"""Measurements: one file per subject, run by ``make bench``. Nothing here decides whether a test passes."""

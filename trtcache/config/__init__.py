"""Configuration: environment, settings file, units, signing keys, logs."""

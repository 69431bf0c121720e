"""Engine builders behind one protocol."""

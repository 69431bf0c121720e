"""The canonical graph and the key document."""

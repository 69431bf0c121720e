"""TorchScript modules and files as exported programs."""

"""What runs an engine with a model's signature and weights."""

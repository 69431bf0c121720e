"""From a graph of Dynamo's to an engine: what its placeholders, weights and results are."""

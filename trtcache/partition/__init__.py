"""Which nodes of a lowered program go to an engine, and what the parts are that it is run in."""

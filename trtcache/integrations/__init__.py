"""The doors in other libraries: programs that use those libraries use the cache without a change."""

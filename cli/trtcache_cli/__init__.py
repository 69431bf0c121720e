"""Command line of trtcache: one file per command, each imported on use."""

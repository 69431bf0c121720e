"""The command line of trtcache: one file per command, each loaded when it is asked for."""

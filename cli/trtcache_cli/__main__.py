"""``python -m trtcache_cli``: the same as ``trtcache``."""

from trtcache_cli.main import main

main()

"""``python -m trtcache_cli``: the ``trtcache`` command."""

from trtcache_cli.main import main

main()

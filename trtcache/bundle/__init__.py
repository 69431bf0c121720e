"""Programs that carry their engines: written by ``trtcache.export``, read by ``trtcache.load``."""

"""Program files with their engines: written by ``trtcache.export``, read by ``trtcache.load``."""

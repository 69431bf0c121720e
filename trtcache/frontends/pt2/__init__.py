"""The files that ``torch.export.save`` writes."""

from __future__ import annotations

from trtcache.frontends.pt2.file import SUFFIX as SUFFIX
from trtcache.frontends.pt2.file import ProgramFile as ProgramFile
from trtcache.frontends.pt2.reading import DTYPES as DTYPES

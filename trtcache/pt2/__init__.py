"""The files that ``torch.export.save`` writes."""

from __future__ import annotations

from trtcache.pt2.elements import DTYPES as DTYPES
from trtcache.pt2.file import SUFFIX as SUFFIX
from trtcache.pt2.file import ProgramFile as ProgramFile

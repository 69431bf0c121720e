"""What torch says of a file that it cannot read, where it then raises something that says less."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)


class Complaint(logging.Filter):
    """Keeps what torch logs about a file that it cannot read, where it then raises something that says less."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the exception, and let the record through to those who asked for it."""
        if record.exc_info:
            self.error = record.exc_info[1]
        return log.isEnabledFor(logging.DEBUG)


@contextmanager
def listening(logger: str) -> Iterator[Complaint]:
    """Give what one of torch's loggers complains of meanwhile, without warnings."""
    theirs, complaint = logging.getLogger(logger), Complaint()
    theirs.addFilter(complaint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield complaint
    finally:
        theirs.removeFilter(complaint)

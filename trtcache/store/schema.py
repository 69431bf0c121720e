"""SQLAlchemy tables of the index. All of their content can be rebuilt from the store's files."""

from __future__ import annotations

from sqlalchemy import Float, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Declarative base of the index's tables."""


class EntryRow(Base):
    """One artifact file: its header and directory metadata."""

    __tablename__ = "entries"

    digest: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    name: Mapped[str | None] = mapped_column(Text)
    file_bytes: Mapped[int]
    size_bytes: Mapped[int]
    created_ns: Mapped[int]
    used_ns: Mapped[int]
    build_s: Mapped[float] = mapped_column(Float)
    members: Mapped[int]
    inode: Mapped[int]


class EventLogRow(Base):
    """Offset up to which one host's event log has been counted."""

    __tablename__ = "event_logs"

    log: Mapped[str] = mapped_column(Text, primary_key=True)
    offset_bytes: Mapped[int]


class CounterRow(Base):
    """Number of events on one day (UTC), and the seconds they saved."""

    __tablename__ = "counters"

    day: Mapped[str] = mapped_column(Text, primary_key=True)
    event: Mapped[str] = mapped_column(Text, primary_key=True)
    reason: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    count: Mapped[int]
    saved_s: Mapped[float] = mapped_column(Float)

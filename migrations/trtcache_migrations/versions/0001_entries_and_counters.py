"""Entries, event logs and counters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "entries",
        sa.Column("digest", sa.Text(), primary_key=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("file_bytes", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.Integer(), nullable=False),
        sa.Column("used_ns", sa.Integer(), nullable=False),
        sa.Column("build_s", sa.Float(), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("inode", sa.Integer(), nullable=False),
    )
    op.create_table(
        "event_logs",
        sa.Column("log", sa.Text(), primary_key=True, nullable=False),
        sa.Column("offset_bytes", sa.Integer(), nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("day", sa.Text(), primary_key=True, nullable=False),
        sa.Column("event", sa.Text(), primary_key=True, nullable=False),
        sa.Column("reason", sa.Text(), primary_key=True, nullable=False),
        sa.Column("kind", sa.Text(), primary_key=True, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("saved_s", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    """Drop the three tables; the index is made anew from the files."""
    for name in ("counters", "event_logs", "entries"):
        op.drop_table(name)

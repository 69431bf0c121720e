"""The target of each entry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. The rows that are there belong to no file then, so the next listing reads all headers."""
    op.add_column("entries", sa.Column("target", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE entries SET inode = -1")


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("entries", "target")

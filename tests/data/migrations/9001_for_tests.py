"""What a later version of the index might do: another table, another index, and every row written anew."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from trtcache.store import record

revision = "9001"
down_revision = record.VERSIONS[-2]
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change tables and rows."""
    op.create_table("later", sa.Column("digest", sa.Text(), primary_key=True, nullable=False))
    op.create_index("by_use", "entries", ["used_ns"])
    op.execute("UPDATE entries SET build_s = build_s + 1")


def downgrade() -> None:
    """Take it back."""
    op.drop_index("by_use")
    op.drop_table("later")

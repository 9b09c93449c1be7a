"""What each message is about, so that those about one job are found without looking at all; of earlier ones it is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("punctual_message", sa.Column("subject", sa.Text, server_default=""))
    op.create_index("punctual_message_subject", "punctual_message", ["journal", "subject", "sequence"])


def downgrade() -> None:
    op.drop_index("punctual_message_subject", "punctual_message")
    op.drop_column("punctual_message", "subject")

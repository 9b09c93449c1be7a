"""The tables of journals in PostgreSQL, of any number of journals in one database."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text

METADATA = MetaData()

MESSAGE = Table(
    "punctual_message",
    METADATA,
    Column("journal", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("subject", Text, server_default=""),
    Index("punctual_message_subject", "journal", "subject", "sequence"),
)
SNAPSHOT = Table(
    "punctual_snapshot",
    METADATA,
    Column("journal", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("checksum", LargeBinary, nullable=False),
    Column("state", LargeBinary, nullable=False),
)
FACT = Table(
    "punctual_fact",
    METADATA,
    Column("journal", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

#: Where Alembic keeps which version the tables have, and the version that this Punctual reads and writes.
VERSION_TABLE = "punctual_version"
VERSION = "0002"

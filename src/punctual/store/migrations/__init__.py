"""How the tables of journals in PostgreSQL come about, from nothing or from an earlier version."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Bring the tables to the version of this Punctual, within the transaction of `connection`.

    Raises
    ------
    alembic.util.CommandError
        They have a version that this Punctual does not know.
    """
    command.upgrade(configuration(connection), "head")


def configuration(connection: Connection | None = None) -> Config:
    """What Alembic is to know."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config

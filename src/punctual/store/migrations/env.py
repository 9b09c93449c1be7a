"""Run by Alembic, in the transaction of whoever calls `upgrade`."""

from alembic import context

from punctual.store.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()

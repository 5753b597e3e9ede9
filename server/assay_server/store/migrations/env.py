"""Run by alembic: migrations go through the connection, and inside the transaction, of the store."""

from alembic import context

from assay_server.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

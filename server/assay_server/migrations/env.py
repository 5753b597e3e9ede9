"""Run by alembic: migrations use the store's connection and run inside its transaction."""

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

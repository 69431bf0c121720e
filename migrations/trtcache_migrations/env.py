"""Alembic's environment: run the migrations on the connection that ``upgrade`` was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()

"""Handlers: plain functions of a record, which know no sockets."""

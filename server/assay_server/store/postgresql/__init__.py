"""The metadata store on PostgreSQL: where it is, what it must be, what it refuses, and the store."""

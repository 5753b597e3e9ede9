"""The metadata store on PostgreSQL: its connections, the lead among servers, and what it refuses."""

"""Access: who is calling, the table of what each role may call, and the record of who did what."""

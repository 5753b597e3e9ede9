"""Files and folders: durable writes, private folders, and the disk space that must stay free."""

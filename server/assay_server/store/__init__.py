"""The server's stores: metadata (campaigns, runs, leases) in SQL, and records (launch tables) in files."""

"""The server's stores, behind two interfaces: metadata (campaigns, runs, leases), records (launch tables)."""

"""What the server keeps: metadata (campaigns, runs, leases) and records (launch tables), behind two seams."""

"""Published records over gRPC: which files a campaign has, and their content."""

"""What other servers are told of a transaction, and what they make of it."""

"""SQL over several tables at once, kept out of the transaction that offers it."""

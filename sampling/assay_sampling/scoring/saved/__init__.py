"""Parts of saved selections beside their groups: how they were drawn, labels, operations."""

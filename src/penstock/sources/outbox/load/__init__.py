"""First loads: the rows of each table as the documents that its trigger would have written, read by ranges of a key."""

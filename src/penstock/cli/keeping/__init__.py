"""What `upkeep` is about, and what it did, in words."""

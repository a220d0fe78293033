"""What `check`, `plan` and `discover` find: nothing is leased, started or written."""

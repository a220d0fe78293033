"""Where rows rest: the Iceberg tables, their one ingest order, and their upkeep."""

"""What is said of tables to someone who configures streams: proposals, and remarks on what is configured."""

"""What `log` reads: saved messages, and how well the time was spent."""

"""HTTP APIs: one account with its limits, retries and credentials. httpx is imported when a client is made."""

"""What runs as a server: the receiver of batches over HTTP. Knows no Spark, and no engine.

The app is put together from one router for each concern. `penstock serve` starts it.
"""

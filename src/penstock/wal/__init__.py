"""Where received batches rest: a log of segments for each stream, and the ledger of what each producer has sent.

Nothing is acknowledged before it is on disk. This room knows neither HTTP nor Spark: who answers requests, and who
reads the rows, is up to others.
"""

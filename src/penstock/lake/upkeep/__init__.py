"""Upkeep of a lake table: compaction, snapshot expiry, orphan files, retention, tombstones.

It runs beside writers and readers, without a lease: everything it commits is conditional on the snapshot it was
prepared from. Spark is started only where files must be rewritten.
"""

"""The first load of a stream with a cursor: which way it goes, and its batches by ranges of the key or by blocks."""

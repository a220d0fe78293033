"""Mode `state`: documents of ops are folded in the server, and a table keeps one row for each entity.

A slice is folded in its transaction: its documents are judged, its ops are applied to copies of the entities that they
concern, in temporary tables, and what differs at the end is written. The meaning of ops is that of `core.ops.fold`.
"""

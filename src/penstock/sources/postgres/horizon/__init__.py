"""How far a cursor is safe to read: what is proven or assumed, who still writes, and what is not yet certified."""

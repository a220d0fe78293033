"""How far a cursor is safe to read: what is proven or assumed, which transactions write, what is not certified yet."""

"""How the store's tables came to be as they are, step by step; every step is tried by a test.

A step says what it does in its own words and never imports `schema`, which tells only of today.
"""

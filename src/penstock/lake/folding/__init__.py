"""Folds documents of ops into a table with one row for each entity, by Spark DataFrames alone.

`documents` turns documents into rows of ops, `fold` computes which entities change, `side_data` has what is kept beside
them, and `committer` puts all of it into the table by one conditional commit.
"""

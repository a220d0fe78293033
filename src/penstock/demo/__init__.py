"""The demo: a real Postgres, real runs of the command, one of them killed, and the proof that no row is lost or double.

`acts` is the story, told and played on the `stage`. `folder` is where it lies, `server` and `programs` bring the
Postgres, `shop` its tables, `writer` the changes, `checksums` the proof.
"""

"""The demo: a real Postgres, real runs of the command, one of them killed, and a proof that no row is lost or double.

`acts` is the story, `stage` runs its commands and prints. `folder` has the paths, `shop` the server and its tables,
`writer` the changes, `checksums` the proof. It is not part of the package: `script/demo` runs it from a clone.
"""

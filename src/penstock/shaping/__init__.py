"""What becomes of a stream's columns and rows between any source and any sink.

`Shaped` is a source around another one, for `shape` in the pipeline file; `Drifting` one around that, for columns that
have changed. The source inside reads as if they were not there, and gets back its own content.
"""

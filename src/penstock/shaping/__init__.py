"""Changes to a stream's columns and rows between any source and any sink.

`ShapedSource` wraps a source: it applies `shape` of the pipeline file, and fits columns that have drifted to those of
the sink. The source inside gets back its own content and does not know about the wrapper.
"""

"""Reads a pipeline file into frozen models, or reports every mistake with its line, key and nearest valid name.

Does not import sources or sinks: their registries are arguments, and each owns the model of its options.
"""

from penstock.config.load import Registry, load
from penstock.config.models import File, Pipeline, Spark, StreamKeys

__all__ = ["File", "Pipeline", "Registry", "Spark", "StreamKeys", "load"]

"""penstock: an incremental sync engine on Spark that moves only what changed, exactly once."""

__version__ = "0.1.0"

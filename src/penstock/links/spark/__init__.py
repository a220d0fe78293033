"""Spark: sessions on one JVM, and the Mover that runs parts in its Python workers."""

from penstock.links.spark.mover import SparkMover
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.links.spark.shared import SharedSpark, SparkRequirements

__all__ = ["SharedSpark", "SparkMover", "SparkOptions", "SparkRequirements", "SparkSessionProvider"]

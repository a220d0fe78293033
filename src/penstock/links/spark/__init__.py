"""Spark: sessions on one JVM, and the Mover that runs parts in its Python workers."""

from penstock.links.spark.house import SparkHouse
from penstock.links.spark.mover import SparkMover
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.shared import Needs, SharedSpark

__all__ = ["Needs", "SharedSpark", "SparkHouse", "SparkMover", "SparkOptions"]

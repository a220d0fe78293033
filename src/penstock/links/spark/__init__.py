"""Spark: the process's one session and the Mover that runs parts in its Python workers."""

from penstock.links.spark.house import SparkHouse
from penstock.links.spark.mover import SparkMover
from penstock.links.spark.session import SparkOptions

__all__ = ["SparkHouse", "SparkMover", "SparkOptions"]

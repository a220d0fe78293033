"""Connections that sources and sinks share: one room per kind of server. Knows neither sources nor sinks."""

"""Generates documentation pages from the command and the configuration models."""

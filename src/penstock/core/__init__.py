"""The pure heart: marks, slices, messages and the folds over them.

Standard library only; no clock, no randomness, no I/O. Time and names arrive as arguments.
"""

"""`penstock version`."""

from __future__ import annotations


def version() -> None:
    """Print the version."""
    from penstock import __version__

    print(f"penstock {__version__}")

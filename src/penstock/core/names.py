"""Suggests the valid name that a wrong name most likely stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def nearest(
    wrong: str,
    valid: Iterable[str],
    *,
    cutoff: float = 0.6,
    synonyms: Mapping[str, Sequence[str]] | None = None,
) -> str | None:
    """The valid name closest to `wrong`, ignoring case; None if no name is close.

    `synonyms` maps a valid name to other words for it, in lower case.
    """
    # The import takes milliseconds, so only a mistake pays for it.
    from difflib import get_close_matches

    lower = {name.lower(): name for name in sorted(valid, reverse=True)}
    close = get_close_matches(wrong.lower(), lower, n=1, cutoff=cutoff)
    if not close:
        close = [name for name, others in (synonyms or {}).items() if name in lower and wrong.lower() in others]
    return lower[close[0]] if close else None


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """`; did you mean 'orders'?`, to append to a message; empty if no name is close."""
    name = nearest(wrong, valid)
    return f"; did you mean '{name}'?" if name is not None else ""


def suggest(
    wrong: str, valid: Iterable[str], plural: str, *, synonyms: Mapping[str, Sequence[str]] | None = None
) -> str:
    """`did you mean 'orders'?`, or a list of all valid names if none is close; `plural` is their noun."""
    names = sorted(valid)
    name = nearest(wrong, names, synonyms=synonyms)
    if name is not None:
        return f"did you mean '{name}'?"
    return f"{plural}: {', '.join(names) or 'none'}"

"""Requests and rounds that a list API of unknown density costs: our rule beside the published one, without a network.

Six distributions over a year of seconds, 10 to 10,000 pages of 100 records and none at all, 1 to 50 workers. In a round
every worker sends at most one request. For M pages, requests must stay within 1.12·M where M is at least 50 for each
worker, and within 1.1·M + 8·workers everywhere. Rounds must stay within 1.5·max(M / workers, pages in the densest
second) + 12, and within two of the published rule, which halves what is left of a range after every page.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import _list_api as api
from benchmarks import _plot_subdivision as pictures

#: the last four are those with exactly 50 pages for each worker
PAGES = (0, 10, 100, 10_000, 50, 250, 1_000, 2_500)
WORKERS = (1, 5, 20, 50)
SEED = 16


@dataclass(frozen=True, slots=True)
class Case:
    """One distribution, size and number of workers, read by both rules."""

    shape: str
    pages: int
    workers: int
    #: pages in the densest second: one worker must read them one after another
    densest: float
    ours: api.Cost
    published: api.Cost

    @property
    def many_pages(self) -> bool:
        """Whether the work is long enough for requests to be bounded by the pages alone."""
        return self.pages >= 50 * self.workers

    @property
    def shortest(self) -> float:
        """Rounds that no rule can do without."""
        return max(self.pages / self.workers, self.densest)

    @property
    def most_requests(self) -> float:
        bound = 1.1 * self.pages + 8 * self.workers
        return min(bound, 1.12 * self.pages) if self.many_pages else bound

    @property
    def most_rounds(self) -> float:
        return 1.5 * self.shortest + 12

    def requests_over_bound(self) -> float:
        return self.ours.requests / self.most_requests

    def rounds_over_bound(self) -> float:
        return self.ours.rounds / self.most_rounds

    def dots(self) -> pictures.Dots:
        """The same for the picture, for both rules."""
        return pictures.Dots(
            self.shape,
            self.workers,
            self.requests_over_bound(),
            self.published.requests / self.most_requests,
            self.rounds_over_bound(),
            self.published.rounds / self.most_rounds,
        )

    def rounds_over_published(self) -> float:
        return self.ours.rounds / (self.published.rounds + 2)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Both rules on the same records."""
    for pages in sizes:
        for shape, times in api.distributions(pages, random.Random(seed)):
            densest = max(Counter(times).values(), default=0) / api.PAGE
            for workers in WORKERS:
                ours, published = api.read_on_demand(times, workers), api.read_by_halving(times, workers)
                yield Case(shape, pages, workers, densest, ours, published)


def verdict(found: Sequence[Case]) -> dict[str, float]:
    """The worst of each ratio, rounded up; none may be above 1."""
    worst = {
        "worst_requests_over_bound": max(case.requests_over_bound() for case in found),
        "worst_makespan_over_bound": max(case.rounds_over_bound() for case in found),
        "worst_makespan_over_published": max(case.rounds_over_published() for case in found),
    }
    return {name: math.ceil(value * 10_000) / 10_000 for name, value in worst.items()}


def line(case: Case) -> str:
    ours, published = case.ours, case.published
    return (
        f"{case.pages:>6,} {case.workers:>3}  {case.shape:<22}"
        f" {ours.requests:>7,} {published.requests:>7,} {case.requests_over_bound():>6.2f}"
        f" {ours.rounds:>7,} {published.rounds:>7,} {case.rounds_over_bound():>6.2f}"
        f" {case.rounds_over_published():>6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=sorted(PAGES), help="sizes in pages of 100 records")
    parser.add_argument("--seed", type=int, default=SEED, help="of the distributions")
    parser.add_argument("--plot", type=Path, help="folder for the pictures of the documentation")
    chosen = parser.parse_args()
    print(f"{'pages':>6} {'w':>3}  {'distribution':<22} {'requests':^22} {'rounds':^29}")
    print(f"{'':<34} {'ours':>7} {'halving':>7} {'bound':>6} {'ours':>7} {'halving':>7} {'bound':>6} {'halv+2':>6}")
    found, begun = [], time.monotonic()
    for case in cases(chosen.pages, chosen.seed):
        print(line(case), flush=True)
        found.append(case)
    seconds = time.monotonic() - begun
    if chosen.plot:
        (chosen.plot / "subdivision-figures.svg").write_text(pictures.draw_figures([case.dots() for case in found]))
        (chosen.plot / "subdivision.svg").write_text(pictures.draw_example())
    print(f"{len(found)} cases in {seconds:.1f} s, {time.process_time():.1f} s of them on the processor")
    worst = verdict(found)
    print(json.dumps(worst))
    if max(worst.values()) > 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

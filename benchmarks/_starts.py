"""penstock's commands whose starts are compared, each in a folder that it keeps, as a crontab's command does.

Cold; at the commit before its start became quick; and handed over to a warm worker.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import _orders as orders
from benchmarks._before import before
from benchmarks._contenders import FEW, HEADER, Ground, pipeline
from benchmarks._processes import Cost, cost_of, spending
from benchmarks._worker import Worker


class Cold:
    """The command, from nothing: the start of Spark included."""

    def __init__(self, ground: Ground, name: str, _stack: ExitStack) -> None:
        self.folder = ground.folder / name
        self.folder.mkdir()
        (self.folder / "shop.yaml").write_text(
            HEADER + pipeline("files", "few", FEW) + pipeline("files", "shop"),
        )
        self.landed = self.folder / "out" / "shop"
        self.env = ground.env
        self.command, self.python = [orders.COMMAND], orders.PYTHON

    def take(self) -> Cost:
        """Take what is new of the table."""
        return self.run("shop")

    def run(self, name: str) -> Cost:
        """One run of one pipeline of the file, from the command's start to its exit."""
        return cost_of([*self.command, "run", "shop.yaml", name], self.env, self.folder)

    def said(self) -> str:
        """What the last run has printed."""
        return (self.folder / "said").read_text(errors="replace")


class Before(Cold):
    """The command of the older commit."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        super().__init__(ground, name, stack)
        checkout = before()
        self.command, self.python = [checkout.python, "-m", "penstock"], checkout.python
        self.env = checkout.environment(ground.env)


class HandedOver(Cold):
    """The command beside a warm worker that has moved a few rows. What the worker costs meanwhile is counted too."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        super().__init__(ground, name, stack)
        self._worker = stack.enter_context(Worker(self.folder / "shop.yaml", self.env))
        self.run("few")

    def run(self, name: str) -> Cost:
        with spending(self._worker.pid) as worker:
            cost = super().run(name)
        self._worker.must_have_run(self.said())
        return Cost(cost.seconds, cost.cpu + worker[0].cpu, cost.peak + worker[0].peak)

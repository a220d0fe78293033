"""One JVM for all pipelines of a command: each gets a session of its own on it, with its own catalogs.

It is started with what the first one needs and, as far as that is known, what later ones will need. One that needs
something else after all gets another JVM.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.errors import InputError
from penstock.links.spark.background_start import Start, given_up_error
from penstock.links.spark.jvm import Jvm, context_runs, forget_dead, stop
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import SECRET, SparkOptions, start, united
from penstock.links.spark.temp_folder import SparkTempFolder, sweep

#: settings that can still be made once a session runs, and that each session has for itself
AT_RUN_TIME = "spark.sql.catalog."


@dataclass(frozen=True)
class SparkRequirements:
    """What a session must have."""

    settings: Mapping[str, str] = field(default_factory=dict)
    #: Maven packages
    packages: Sequence[str] = ()

    def combine_with(self, other: SparkRequirements) -> SparkRequirements:
        """Both; InputError where they contradict each other."""
        packages = tuple(dict.fromkeys([*self.packages, *other.packages]))
        return SparkRequirements(united(self.settings, other.settings), packages)

    def only_at_start(self) -> SparkRequirements:
        """The part of it that only a start can give."""
        settings = {key: value for key, value in self.settings.items() if not key.startswith(AT_RUN_TIME)}
        return SparkRequirements(settings, self.packages)


class SharedSpark:
    """The JVM that houses share, one after the other."""

    def __init__(self, options: SparkOptions, ahead: Callable[[], Iterable[SparkRequirements]] = lambda: ()) -> None:
        """`ahead` gives what others will need later; asked before every start."""
        self.options = options
        self.log = SparkLog()
        #: whether the session was there before us
        self.foreign = False
        self._ahead = ahead
        self._lock = threading.Lock()
        self._session: Any = None
        self._jvm: Jvm | None = None
        self._scratch: SparkTempFolder | None = None
        #: a start that goes on, or whose outcome nobody has asked for
        self._starting: Start | None = None
        #: what the JVM was started with, and what for
        self._has = self._started_for = SparkRequirements()
        #: the session that came with the start, until somebody uses it
        self._unused: Any = None

    @property
    def alive(self) -> bool:
        """Whether there is a session and its JVM lives, as far as we know; one that is dead is forgotten."""
        if self._session is not None and self._jvm is not None and self._jvm.status() is not None:
            self.end(orderly=False)
        return self._session is not None

    def serves(self, needs: SparkRequirements) -> bool:
        """Whether the JVM lives and can give a session that has all this, without another start."""
        if not self.alive:
            return False
        if self.foreign:
            return True  # it is somebody else's: there is no other one
        try:
            both = self._has.only_at_start().combine_with(needs.only_at_start())
        except InputError:
            return False
        return both == self._has.only_at_start() and not self._would_show(needs)

    def begin(self, needs: SparkRequirements) -> None:
        """Begin to start the JVM beside the caller, unless it runs or starts already; `open` waits for it."""
        if self._starting is None and not self.alive:
            self._starting = Start(partial(self._start, needs))

    def open(self, needs: SparkRequirements) -> Any:
        """A session that has all this; waits for the JVM's start if there must be one."""
        with self._lock:
            self._await_start()
            if self.foreign:
                self._session = None  # somebody else's is asked again whether it has what we need
            if not self.serves(needs):
                self.end()
                self.begin(needs)
                self._await_start()
            first, self._unused = self._unused, None
            # The one that was started has the catalogs of whoever it was started for.
            return first if first is not None and needs == self._started_for else self._another(needs)

    def status(self, error: BaseException | None = None) -> int | None:
        """The exit status of a JVM that has died; None: it lives, or there is none."""
        return self._jvm.status(error) if self._jvm is not None else None

    def add(self, session: Any, has: SparkRequirements, needs: SparkRequirements) -> bool:
        """Add to a session that runs what can still be added; False: it needs another start.

        InputError if that cannot help, since the session is needed as it is.
        """
        new = {key: value for key, value in needs.settings.items() if has.settings.get(key) != value}
        late = [key for key in new if not key.startswith(AT_RUN_TIME)]
        late += [package for package in needs.packages if package not in has.packages]
        if not late and self._would_show(SparkRequirements(new)):
            if not self.foreign:
                return False
            late = [key for key in new if re.search(SECRET, key)]
        if late:
            raise InputError(
                f"Spark runs already and cannot be given {', '.join(late)} any more",
                next_step="name them under `spark.config` in the pipeline file, or run this in a process of its own",
            )
        for key, value in new.items():
            session.conf.set(key, value)
        return True

    def end(self, *, orderly: bool = True) -> None:
        """End the session and its JVM: `stop()` alone would leave the JVM behind. Idempotent.

        One that somebody else in this process had started is theirs to end.
        """
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.give_up()
        session, self._session, self._unused = self._session, None, None
        jvm, self._jvm = self._jvm, None
        dead = jvm is not None and jvm.status() is not None
        clean = session is not None and orderly and not dead and not self.foreign
        if clean:
            stop(session)
        if jvm is not None and (dead or not self.foreign):
            # What a user has added to Spark may still have something to do when Java ends.
            jvm.end(at_once=clean and not self.options.config)
        if clean and jvm is not None and jvm.archive is not None:
            jvm.archive.make_in_background()
        self.log.close()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _would_show(self, needs: SparkRequirements) -> bool:
        """Whether secrets would get into Spark's event log: it leaves out only those that it was started with."""
        secrets = [key for key, value in needs.settings.items() if self._has.settings.get(key) != value]
        if not any(re.search(SECRET, key) for key in secrets):
            return False
        logged: str = self._session.conf.get("spark.eventLog.enabled", "false")
        return logged == "true"

    def _another(self, needs: SparkRequirements) -> Any:
        """Another session on the JVM that runs, with these catalogs and no others."""
        session = self._session.newSession()
        for key in self._has.settings:
            if key.startswith(AT_RUN_TIME) and key not in needs.settings:
                session.conf.unset(key)
        for key, value in needs.settings.items():
            if key.startswith(AT_RUN_TIME):
                session.conf.set(key, value)
        return session

    def _await_start(self) -> None:
        starting = self._starting
        if starting is not None:
            try:
                starting.wait()
            finally:
                self._starting = None

    def _start(self, needs: SparkRequirements, attempt: Start) -> None:
        from penstock.links.spark import attach, jars

        wanted = self._with_what_comes(needs)
        files = jars.files(wanted.packages, wanted.settings)
        attached = attach.attach(self.options, wanted.settings, files)
        forget_dead()
        self.foreign = context_runs()
        sweep()
        scratch = SparkTempFolder()
        try:
            session = start(self.options, wanted.settings, files, self.log, scratch.path, attempt)
            if attempt.given_up:
                raise given_up_error()
        except BaseException:
            jvm = Jvm.current()
            if attempt.given_up and jvm is not None and not self.foreign:
                jvm.end()
            scratch.remove()
            raise
        self._scratch, self._jvm, self._has, self._started_for = scratch, Jvm.current(), wanted, needs
        self._session = self._unused = session
        if attached or not self.foreign:
            self.log.take_loggers()
        if attached:
            self.log.take_errors_of(session.sparkContext._accumulatorServer)

    def _with_what_comes(self, needs: SparkRequirements) -> SparkRequirements:
        """What a start must give, and what will be needed later where that fits: others get another start."""
        wanted = needs
        for later in self._ahead():
            try:
                wanted = wanted.combine_with(later.only_at_start())
            except InputError:
                continue
        return wanted

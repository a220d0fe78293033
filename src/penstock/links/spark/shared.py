"""One JVM for all pipelines of a command: each gets a session of its own on it, with its own catalogs.

The JVM starts with what the first pipeline requires and what later ones are known to require. A pipeline that
requires something else gets another JVM.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.errors import InputError
from penstock.links.spark.attach import SESSION_SETTINGS, attach, without_session_settings
from penstock.links.spark.background_start import BackgroundStart, cancelled_error
from penstock.links.spark.jvm import Jvm, forget_dead, has_context, stop_session
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import SECRET, SparkOptions, merge_settings, start
from penstock.links.spark.temp_folder import SparkTempFolder, sweep_temp_folders


@dataclass(frozen=True)
class SparkRequirements:
    """Settings and packages that a session must have."""

    settings: Mapping[str, str] = field(default_factory=dict)
    #: Maven packages
    packages: Sequence[str] = ()

    def combine_with(self, other: SparkRequirements) -> SparkRequirements:
        """Both together; InputError where they contradict each other."""
        packages = tuple(dict.fromkeys([*self.packages, *other.packages]))
        return SparkRequirements(merge_settings(self.settings, other.settings), packages)

    def only_at_start(self) -> SparkRequirements:
        """The part that can only be given when the JVM starts."""
        return SparkRequirements(without_session_settings(self.settings), self.packages)


class SharedSpark:
    """The JVM that several session providers share, one after the other."""

    def __init__(self, options: SparkOptions, upcoming: Callable[[], Iterable[SparkRequirements]] = lambda: ()) -> None:
        """`upcoming` lists what later sessions will require; it is asked before every start."""
        self.options = options
        self.log = SparkLog()
        #: whether somebody else has started the session
        self.foreign = False
        self._upcoming = upcoming
        self._lock = threading.Lock()
        self._session: Any = None
        self._jvm: Jvm | None = None
        self._temp_folder: SparkTempFolder | None = None
        #: a start that is under way, or whose result was not read yet
        self._starting: BackgroundStart | None = None
        #: what the JVM was started with, and for which requirements
        self._started_with = self._started_for = SparkRequirements()
        #: the session that came with the start, until it is used
        self._first_session: Any = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a session and its JVM lives, as far as we know; one that is dead is forgotten."""
        if self._session is not None and self._jvm is not None and self._jvm.status() is not None:
            self.end(orderly=False)
        return self._session is not None

    def serves(self, required: SparkRequirements) -> bool:
        """Whether the JVM lives and can give a session that has all this, without another start."""
        if not self.is_alive:
            return False
        if self.foreign:
            return True  # it is somebody else's: there is no other one
        try:
            both = self._started_with.only_at_start().combine_with(required.only_at_start())
        except InputError:
            return False
        return both == self._started_with.only_at_start() and not self._would_log_secret(required)

    def begin(self, required: SparkRequirements) -> None:
        """Begin to start the JVM beside the caller, unless it runs or starts already; `open` waits for it."""
        if self._starting is None and not self.is_alive:
            self._starting = BackgroundStart(partial(self._start, required))

    def open(self, required: SparkRequirements) -> Any:
        """A session that has all this; waits for the JVM's start if there must be one."""
        with self._lock:
            self._await_start()
            if self.foreign:
                self._session = None  # somebody else's is asked again whether it has what we need
            if not self.serves(required):
                self.end()
                self.begin(required)
                self._await_start()
            first, self._first_session = self._first_session, None
            # The session has the catalogs of the pipeline that it was started for.
            return first if first is not None and required == self._started_for else self._new_session(required)

    def status(self, error: BaseException | None = None) -> int | None:
        """The exit status of a JVM that has died; None: it lives, or there is none."""
        return self._jvm.status(error) if self._jvm is not None else None

    def add(self, session: Any, has: SparkRequirements, required: SparkRequirements) -> bool:
        """Add to a session that runs what can still be added; False: it needs another start.

        InputError if that cannot help, since the session is needed as it is.
        """
        new = {key: value for key, value in required.settings.items() if has.settings.get(key) != value}
        late = [key for key in new if not key.startswith(SESSION_SETTINGS)]
        late += [package for package in required.packages if package not in has.packages]
        if not late and self._would_log_secret(SparkRequirements(new)):
            if not self.foreign:
                return False
            late = [key for key in new if re.search(SECRET, key)]
        if late:
            raise InputError(
                f"Spark is already running, and these settings must be set before it starts: {', '.join(late)}",
                next_step="set them under `spark.config` in the pipeline file, or run this pipeline in its own process",
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
        session, self._session, self._first_session = self._session, None, None
        jvm, self._jvm = self._jvm, None
        dead = jvm is not None and jvm.status() is not None
        clean = session is not None and orderly and not dead and not self.foreign
        if clean:
            stop_session(session)
        if jvm is not None and (dead or not self.foreign):
            # What a user has added to Spark may still have something to do when Java ends.
            jvm.end(at_once=clean and not self.options.config)
        if clean and jvm is not None and jvm.archive is not None:
            jvm.archive.make_in_background()
        self.log.close()
        if self._temp_folder is not None:
            self._temp_folder.remove()
            self._temp_folder = None

    def _would_log_secret(self, required: SparkRequirements) -> bool:
        """Whether secrets would get into Spark's event log: it leaves out only those that it was started with."""
        secrets = [key for key, value in required.settings.items() if self._started_with.settings.get(key) != value]
        if not any(re.search(SECRET, key) for key in secrets):
            return False
        logged: str = self._session.conf.get("spark.eventLog.enabled", "false")
        return logged == "true"

    def _new_session(self, required: SparkRequirements) -> Any:
        """Another session on the JVM that runs, with these catalogs and no others."""
        session = self._session.newSession()
        for key in self._started_with.settings:
            if key.startswith(SESSION_SETTINGS) and key not in required.settings:
                session.conf.unset(key)
        for key, value in required.settings.items():
            if key.startswith(SESSION_SETTINGS):
                session.conf.set(key, value)
        return session

    def _await_start(self) -> None:
        starting = self._starting
        if starting is not None:
            try:
                starting.wait()
            finally:
                self._starting = None

    def _start(self, required: SparkRequirements, attempt: BackgroundStart) -> None:
        from penstock.links.spark import jars

        wanted = self._with_upcoming(required)
        files = jars.files(wanted.packages, wanted.settings)
        attached = attach(self.options, wanted.settings, files)
        forget_dead()
        self.foreign = has_context()
        sweep_temp_folders()
        temp_folder = SparkTempFolder()
        try:
            session = start(self.options, wanted.settings, files, self.log, temp_folder.path, attempt)
            if attempt.given_up:
                raise cancelled_error()
        except BaseException:
            jvm = Jvm.current()
            if attempt.given_up and jvm is not None and not self.foreign:
                jvm.end()
            temp_folder.remove()
            raise
        self._temp_folder, self._jvm, self._started_with, self._started_for = (
            temp_folder,
            Jvm.current(),
            wanted,
            required,
        )
        self._session = self._first_session = session
        if attached or not self.foreign:
            self.log.take_loggers()
        if attached:
            self.log.take_errors_of(session.sparkContext._accumulatorServer)

    def _with_upcoming(self, required: SparkRequirements) -> SparkRequirements:
        """What a start must give, and what will be needed later where that fits: others get another start."""
        wanted = required
        for later in self._upcoming():
            try:
                wanted = wanted.combine_with(later.only_at_start())
            except InputError:
                continue
        return wanted

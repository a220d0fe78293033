"""Starts Spark's JVM as `java` itself, where only our settings have a say in it.

Spark's own `spark-submit` starts a shell and a JVM before that one, to read files and variables that are seldom there.
Where one of them is, or a setting that only `spark-submit` understands, it is left to that: see `Command.plain`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

#: what `spark-submit` of the locked version adds for the modules of Java; a test compares them
MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
#: the program that PySpark talks to
GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
#: settings that only `spark-submit` understands
_SUBMITTED = (
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
    "spark.files",
    "spark.jars",
    "spark.kerberos.",
    "spark.submit.",
    "spark.yarn.",
)
#: variables that it heeds
_HEEDED = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CLASSPATH",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_LIBRARY_PATH",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
)
#: the file in which the JVM says how it can be reached
_ADDRESS = "_PYSPARK_DRIVER_CONN_INFO_PATH"
#: seconds between two looks for it
_LOOK_SECONDS = 0.01


class ClassArchive(Protocol):
    """The archive of classes with which a JVM starts sooner: see `archive`."""

    def options(self, scratch: Path) -> list[str]:
        """Options with which the JVM uses it; none if it is not there."""

    def remove(self) -> None:
        """Remove it: a JVM has died with it."""

    def make_in_background(self) -> None:
        """Have it made if it is missing."""


@dataclass(frozen=True)
class Command:
    """How Spark's JVM is started with some settings."""

    java: Path
    #: the folder of Spark
    home: Path
    settings: Mapping[str, str]

    @classmethod
    def plain(cls, settings: Mapping[str, str], environment: Mapping[str, str]) -> Command | None:
        """The command, if all that it depends on are these settings; None: `spark-submit` must be asked."""
        home, java = _home(), _java(environment)
        if home is None or java is None or (home / "conf").exists():
            return None
        if environment.get("SPARK_HOME") not in (None, str(home)) or any(name in environment for name in _HEEDED):
            return None
        if any(key.startswith(_SUBMITTED) for key in settings):
            return None
        return cls(java, home, settings)

    @property
    def class_path(self) -> list[str]:
        """Every file by its name: with a wildcard, Java would have none that an archive could be compared with."""
        extra = self.settings.get("spark.driver.extraClassPath", "")
        jars = sorted(str(jar) for jar in (self.home / "jars").glob("*.jar"))
        # As `spark-submit` has it: the logging facade first.
        facade = [jar for jar in jars if os.path.basename(jar).startswith("slf4j-api-")]
        return [*filter(None, extra.split(os.pathsep)), *facade, *(jar for jar in jars if jar not in facade)]

    @property
    def options(self) -> list[str]:
        """The JVM's options, without the class path."""
        memory = self.settings.get("spark.driver.memory", "1g")
        own = shlex.split(self.settings.get("spark.driver.extraJavaOptions", ""))
        return [f"-Xmx{memory}", *own, *MODULES]

    def words(self, more: Sequence[str] = ()) -> list[str]:
        """The command line; `more` are further options of the JVM."""
        settings = [f"-D{key}={value}" for key, value in self.settings.items()]
        path = os.pathsep.join(self.class_path)
        return [str(self.java), "-cp", path, *self.options, *more, *settings, GATEWAY]

    def launch(
        self, scratch: Path, log: int, archive: ClassArchive | None = None, more: Sequence[str] = ()
    ) -> Launched:
        """Start it; its output goes to `log`, and how it is reached to a file in `scratch`."""
        archived = archive.options(scratch) if archive is not None else []
        address = scratch / "gateway"
        environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
            _ADDRESS: str(address),
        }
        # Ctrl-C is for us alone. A shell sets that before Java begins: in a process with threads, Python must not.
        shielded = ["/bin/sh", "-c", 'trap "" INT; exec "$0" "$@"', *self.words([*archived, *more])]
        process = subprocess.Popen(
            shielded, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, close_fds=True
        )
        return Launched(process, address, archive, bool(archived))


@dataclass(frozen=True)
class Launched:
    """A JVM that has been started, and perhaps cannot be reached yet."""

    process: subprocess.Popen[bytes]
    address: Path
    #: of the classes that it loads; None: it has none
    archive: ClassArchive | None = None
    #: whether it was started with that archive; otherwise the archive is still to be made
    archived: bool = False

    def gateway(self) -> Any:
        """Wait until it can be reached, and reach it. RuntimeError if it ends before."""
        from pyspark.java_gateway import launch_gateway

        while not (said := _address(self.address)):
            if self.process.poll() is not None:
                raise RuntimeError(f"the JVM ended with exit code {self.process.returncode} as it started")
            time.sleep(_LOOK_SECONDS)
        port, secret = said
        self.address.unlink()
        # PySpark's own way to a JVM that others have started.
        named = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(named)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark's own
        finally:
            for name in named:
                del os.environ[name]
        gateway.proc, gateway.archive = self.process, self.archive
        return gateway


def _address(file: Path) -> tuple[int, str] | None:
    """Port and secret, once the JVM has said them; None: not yet. It renames the file when it is whole."""
    try:
        said = file.read_bytes()
    except FileNotFoundError:
        return None
    length = int.from_bytes(said[4:8], "big")
    return int.from_bytes(said[:4], "big"), said[8 : 8 + length].decode()


def _home() -> Path | None:
    """The folder of the Spark that comes with PySpark, which is not imported for it."""
    found = find_spec("pyspark")
    home = Path(found.origin).resolve().parent if found and found.origin else None
    return home if home and (home / "jars").is_dir() and not (home / "spark-distribution").exists() else None


def _java(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get("JAVA_HOME"):
        java = Path(named, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None

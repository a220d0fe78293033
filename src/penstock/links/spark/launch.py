"""Starts Spark's JVM as `java` itself, where only our settings decide how.

Spark's own `spark-submit` starts a shell and a JVM before that one, to read files and variables that are seldom there.
Where one of them is, or a setting that only `spark-submit` understands, `spark-submit` starts it: see `Command.plain`.
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.links.spark.archive import Archive

#: options for Java's modules, which `spark-submit` of the locked version adds; a test compares them
MODULE_OPTIONS = (
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
_SUBMIT_SETTINGS = (
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
#: variables that `spark-submit` reads
_SUBMIT_VARIABLES = (
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
#: names the file into which the JVM writes its port and its secret
_ADDRESS_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
#: seconds between two looks for it
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Command:
    """The command that starts Spark's JVM with some settings."""

    java: Path
    #: the folder of Spark
    home: Path
    settings: Mapping[str, str]

    @classmethod
    def plain(cls, settings: Mapping[str, str], environment: Mapping[str, str]) -> Command | None:
        """The command, if it depends on these settings alone; None: `spark-submit` must start the JVM."""
        home, java = _find_spark(), _find_java(environment)
        if home is None or java is None or (home / "conf").exists():
            return None
        if environment.get("SPARK_HOME") not in (None, str(home)) or any(
            name in environment for name in _SUBMIT_VARIABLES
        ):
            return None
        if any(key.startswith(_SUBMIT_SETTINGS) for key in settings):
            return None
        return cls(java, home, settings)

    @property
    def class_path(self) -> list[str]:
        """Every file by its name: an archive does not fit a class path with a wildcard."""
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
        return [f"-Xmx{memory}", *own, *MODULE_OPTIONS]

    def words(self, more: Sequence[str] = ()) -> list[str]:
        """The command line; `more` are further options of the JVM."""
        settings = [f"-D{key}={value}" for key, value in self.settings.items()]
        path = os.pathsep.join(self.class_path)
        return [str(self.java), "-cp", path, *self.options, *more, *settings, GATEWAY]

    def launch(
        self, temp_folder: Path, log: int, archive: Archive | None = None, more: Sequence[str] = ()
    ) -> LaunchedJvm:
        """Start it; its output goes to `log`, its port and secret to a file in `temp_folder`."""
        archived = archive.options(temp_folder) if archive is not None else []
        address = temp_folder / "gateway"
        environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
            _ADDRESS_VARIABLE: str(address),
        }
        # Ctrl-C is for us alone. A shell sets that before Java begins: in a process with threads, Python must not.
        shielded = ["/bin/sh", "-c", 'trap "" INT; exec "$0" "$@"', *self.words([*archived, *more])]
        process = subprocess.Popen(
            shielded, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, close_fds=True
        )
        return LaunchedJvm(process, address, archive, bool(archived))


@dataclass(frozen=True)
class LaunchedJvm:
    """A JVM that was started and may not be reachable yet."""

    process: subprocess.Popen[bytes]
    address: Path
    #: of the classes that it loads; None: none is used
    archive: Archive | None = None
    #: whether it was started with that archive; otherwise the archive is still to be made
    uses_archive: bool = False

    def gateway(self) -> Any:
        """Wait until it can be reached, and connect to it. RuntimeError if it ends before."""
        while not (found := _read_address(self.address)):
            if self.process.poll() is not None:
                raise RuntimeError(f"the JVM ended with exit code {self.process.returncode} as it started")
            time.sleep(_POLL_SECONDS)
        self.address.unlink()
        gateway = connect_gateway(*found)
        gateway.proc, gateway.archive = self.process, self.archive
        return gateway


def connect_gateway(port: int, secret: str) -> Any:
    """Connect to a running JVM, as PySpark does to one that others have started."""
    from pyspark.java_gateway import launch_gateway

    named = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(named)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]  # pyspark's own
    finally:
        for name in named:
            del os.environ[name]


def _read_address(file: Path) -> tuple[int, str] | None:
    """The port and the secret; None: not yet. The JVM renames the file when it is complete."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    length = int.from_bytes(content[4:8], "big")
    return int.from_bytes(content[:4], "big"), content[8 : 8 + length].decode()


def _find_spark() -> Path | None:
    """The folder of the Spark that comes with PySpark, which is not imported for it."""
    found = find_spec("pyspark")
    home = Path(found.origin).resolve().parent if found and found.origin else None
    return home if home and (home / "jars").is_dir() and not (home / "spark-distribution").exists() else None


def _find_java(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get("JAVA_HOME"):
        java = Path(named, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None

"""The Java libraries that Spark needs for the lake: fetched from Maven once, by Spark's own Ivy, then found as files.

They lie in one folder: PENSTOCK_JARS, or else `penstock/jars` among this user's caches. A start with the files there
costs no network and no resolution. `python -m penstock.links.spark.jars` fetches what a lake on this machine needs
and prints where it is; names after it (`postgres`, `aws`) choose others.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import InputError
from penstock.links.cache import cache_folder

# Each is one file: what it needs besides is inside it or comes with Spark.
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
POSTGRES = "org.postgresql:postgresql:42.7.13"
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"

NAMES = {"iceberg": ICEBERG, "sqlite": SQLITE, "postgres": POSTGRES, "aws": AWS}
#: what a lake with its catalog in SQLite needs
LAKE_PACKAGES = (ICEBERG, SQLITE)

#: Spark's settings that say where Maven packages come from
_REPOSITORY_SETTINGS = ("spark.jars.repositories", "spark.jars.ivySettings")


def folder() -> Path:
    """Where the files are kept."""
    named = os.environ.get("PENSTOCK_JARS")
    return Path(named).absolute() if named else cache_folder() / "jars"


def files(packages: Sequence[str], settings: Mapping[str, str] | None = None) -> list[Path]:
    """The packages' files, in that order; fetches what is not there. InputError if that fails.

    `settings` are Spark's, for a user whose packages come from a repository of their own.
    """
    missing = [package for package in packages if not _is_whole(file_of(package))]
    if missing:
        _fetch(missing, settings or {})
    return [file_of(package) for package in packages]


def file_of(package: str) -> Path:
    """Where a package's file lies, or will lie."""
    group, artifact, version = package.split(":")
    # As Ivy names it.
    return folder() / f"{group}_{artifact}-{version}.jar"


def _is_whole(file: Path) -> bool:
    """Whether the file is there with its end: a jar's directory is written last."""
    return zipfile.is_zipfile(file)


def _fetch(packages: Sequence[str], settings: Mapping[str, str]) -> None:
    """Resolve into a folder of this attempt, and give a file its name only once it is whole."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder()) as attempt:
            output = _resolve(packages, settings, Path(attempt))
            for package in packages:
                fetched = Path(attempt, "jars", file_of(package).name)
                if not _is_whole(fetched):
                    raise _fetch_failed(package, output)
                os.replace(fetched, file_of(package))
    except OSError as error:
        raise _fetch_failed(packages[0], f"{error.strerror or error}: {error.filename}") from error


def _resolve(packages: Sequence[str], settings: Mapping[str, str], attempt: Path) -> str:
    """Have Spark's own Ivy resolve the packages into `attempt`; what it says of them."""
    from pyspark.find_spark_home import _find_spark_home

    # Packages are resolved before a program is run, and this one does nothing.
    program = attempt / "nothing.py"
    program.touch()
    chosen = {key: settings[key] for key in _REPOSITORY_SETTINGS if key in settings}
    chosen |= {"spark.jars.packages": ",".join(packages), "spark.jars.ivy": str(attempt)}
    home: str = _find_spark_home()  # type: ignore[no-untyped-call]  # pyspark's own
    command = [str(Path(home, "bin", "spark-submit")), "--master", "local[1]"]
    command += [word for key, value in chosen.items() for word in ("--conf", f"{key}={value}")]
    environment = {"PYSPARK_PYTHON": sys.executable} | os.environ
    with subprocess.Popen(
        [*command, str(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    ) as process:
        # A caller that gives up waiting for this thread goes on without it.
        atexit.register(process.kill)
        output, _ = process.communicate()
        atexit.unregister(process.kill)
    if process.returncode < 0:
        # Nothing of what it had fetched so far is taken: who gave up waiting may look whether anything is left.
        raise _fetch_failed(packages[0], f"ended by signal {-process.returncode}")
    return output


def _fetch_failed(package: str, output: str) -> InputError:
    lines = [line.strip() for line in output.splitlines()]
    telling = [line for line in lines if "Exception" in line or "unresolved" in line or "not found" in line] or lines
    return InputError(
        f"Spark needs {package}, which is not in {folder()} and could not be fetched from Maven: "
        f"{telling[-1] if telling else 'no reason given'}",
        next_step="run again where the network reaches Maven; or run `python -m penstock.links.spark.jars` on a "
        "machine where it does, copy the folder it names to this one, and set PENSTOCK_JARS to it",
    )


def main(words: Sequence[str]) -> int:
    unknown = [word for word in words if word not in NAMES]
    if unknown:
        print(f"jars: unknown: {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    packages = [NAMES[word] for word in words] or list(LAKE_PACKAGES)
    missing = [package for package in packages if not _is_whole(file_of(package))]
    if missing:
        print(f"jars: fetching {', '.join(missing)} into {folder()}", file=sys.stderr)
    try:
        found = files(packages)
    except InputError as error:
        print(f"jars: {error.what}\nNext: {error.next_step}", file=sys.stderr)
        return error.exit_code
    for file in found:
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

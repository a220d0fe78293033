"""What `script/soak suite` reads from a run's report."""

from __future__ import annotations

from pathlib import Path

from tests.soak.suite import Report

REPORT = """<testsuites><testsuite>
<testcase classname="tests.links.test_http" name="test_a" time="1.0"/>
<testcase classname="tests.contracts.test_sink.TestCsvFiles" name="test_b" time="2.0"><failure/></testcase>
<testcase classname="tests.contracts.test_sink.TestLakeLog" name="test_b[1]" time="3.5"/>
<testcase classname="tests.sinks.files.test_visible" name="test_c" time="4.0"><error>no</error></testcase>
</testsuite></testsuites>"""


def test_seconds_by_folder_and_file(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert Report.read(tmp_path / "report.xml") == Report(
        tests=4,
        failed=["tests/contracts/test_sink/TestCsvFiles::test_b", "tests/sinks/files/test_visible::test_c"],
        seconds_by_folder={"contracts": 5.5, "sinks": 4.0, "links": 1.0},
        slowest_files={
            "tests/contracts/test_sink.py": 5.5,
            "tests/sinks/files/test_visible.py": 4.0,
            "tests/links/test_http.py": 1.0,
        },
    )

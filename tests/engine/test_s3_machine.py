"""The gate's properties with the files sink on a real S3 server: the faults of the machine, in a shorter search."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import MORE_EXAMPLES
from tests.engine.s3_world import S3Machine

LONG_ENOUGH = settings(
    max_examples=5 * MORE_EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_properties_hold_on_s3() -> None:
    run_state_machine_as_test(S3Machine, settings=LONG_ENOUGH)

"""Every Mover keeps the contract; a new one joins here."""

import tempfile
from collections.abc import Iterator

import pytest
from tests.harness.doubles import LoopMover

from penstock.links.spark import SparkMover, SparkOptions, SparkSessionProvider
from penstock.testing.contracts.mover import MoverContract


class TestLoop(MoverContract):
    gives_up_a_part = False

    @pytest.fixture
    def mover(self) -> LoopMover:
        return LoopMover()

    @pytest.fixture
    def another(self) -> LoopMover:
        return LoopMover()


#: two tries: each costs seconds, and what fails here fails always
OPTIONS = SparkOptions(master="local[2,2]")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkMover]:
    mover = SparkMover(SparkSessionProvider(OPTIONS))
    with pytest.MonkeyPatch.context() as patch:
        # What fails here on purpose leaves a log.
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("logs")))
        yield mover
        mover.close()


# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestSpark(MoverContract):
    @pytest.fixture
    def mover(self, spark: SparkMover) -> SparkMover:
        return spark

    @pytest.fixture
    def another(self, spark: SparkMover) -> SparkMover:
        """On the same session, which the first one ends."""
        return SparkMover(SparkSessionProvider(OPTIONS))

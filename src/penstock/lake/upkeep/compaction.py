"""Compaction: many small files into few, sorted by the order, rows and numbers unchanged.

Windows are chosen from the manifests; Spark is started only if there is one. Where the table has a sort order of its
own, files are sorted by it inside each window. A keyed table is compacted under the turn: beside merges a compaction
never lands by itself. What was to be rewritten and was not is a failure.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import shown_size
from penstock.lake import names
from penstock.lake.landing import PATIENT
from penstock.lake.upkeep.census import Census, taken
from penstock.lake.upkeep.procedures import Conflict, ask
from penstock.lake.upkeep.racing import turn
from penstock.lake.upkeep.windows import Rules, Window
from penstock.lake.upkeep.work import Done, Work, counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "compaction"
#: how often a rewrite that others' commits have undone is begun again
TRIES = 6
#: seconds in which landings that waited for a turn may come through, before the next one is taken
PAUSE = 0.3


@dataclass
class _Tally:
    rewritten: int = 0
    added: int = 0
    deletes: int = 0


def compact(work: Work) -> list[Done]:
    """Rewrite the windows that are worth it."""
    table, standing = work.loaded()
    if not standing.orderly:
        # Written again with ours, rows of others would no longer be told by the snapshot that brought them.
        return [Done(STEP, "nothing compacted: others have written meanwhile, and their rows have no place yet")]
    rules = rules_of(work, table, keyed=standing.mode == "merge")
    before = taken(table)
    windows = rules.windows(before)
    if not windows and not rules.deletes_wanted(before):
        return [Done(STEP, f"nothing to compact in {_shown(before)}", _facts(before, before))]
    if work.dry_run:
        files = sum(len(window.entries) for window in windows)
        size = sum(window.bytes for window in windows)
        text = f"would rewrite {counted(files, 'file')} ({shown_size(size)}) of {_shown(before)}"
        return [Done(STEP, text, {"files": files, "bytes": size})]
    tally = _Tally()
    for window in windows:
        _rewritten(work, rules, window, tally)
        if rules.keyed:
            time.sleep(PAUSE)
    if rules.deletes_wanted(taken(work.loaded()[0])):
        _deletes_rewritten(work, rules, tally)
    after = taken(work.loaded()[0])
    text = f"rewrote {counted(tally.rewritten, 'file')} as {tally.added}: {_shown(before)} became {_shown(after)}"
    if tally.deletes:
        text += f"; merged {counted(tally.deletes, 'delete file')}"
    return [Done(STEP, text, {**_facts(before, after), "rewritten": tally.rewritten, "added": tally.added})]


def rules_of(work: Work, table: Table, *, keyed: bool) -> Rules:
    return Rules(
        target=work.options.target_file_size,
        least=work.options.min_input_files,
        sorted_otherwise=not table.sort_order().is_unsorted,
        keyed=keyed,
    )


def _shown(census: Census) -> str:
    deletes = f" and {counted(census.deletes, 'delete file')}" if census.deletes else ""
    return f"{counted(len(census.entries), 'file')}{deletes} ({shown_size(census.bytes)})"


def _facts(before: Census, after: Census) -> dict[str, Any]:
    return {
        "files_before": len(before.entries),
        "files_after": len(after.entries),
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
        "delete_files_after": after.deletes,
    }


def _rewritten(work: Work, rules: Rules, window: Window, tally: _Tally) -> None:
    """One window, tried again while others come in between; StreamFailed if nothing came of it."""
    last = ""
    for lost in range(TRIES):
        try:
            # Landings of a keyed table write deletes for the very files that are rewritten.
            with turn(work) if rules.keyed or lost >= PATIENT else nullcontext():
                said = ask(work, rewrite_sql(work, rules, window))
        except Conflict as error:
            work.probe.at("lake.compaction_lost_race")
            last = str(error)
            if _done_by_others(work, window):
                return
            continue
        if said["failed_data_files_count"]:
            raise work.failed(
                f"compaction could not rewrite {said['failed_data_files_count']} of {len(window.entries)} files with "
                f"numbers from {window.after + 1} to {window.upto}",
                "run the upkeep again; if it happens again, see Spark's log",
            )
        if not said["rewritten_data_files_count"]:
            if _done_by_others(work, window):
                return
            raise work.failed(
                f"compaction rewrote nothing, although {len(window.entries)} files with numbers from "
                f"{window.after + 1} to {window.upto} were to be rewritten",
                "run the upkeep again when fewer are at work; if it happens again, report it as a defect",
            )
        tally.rewritten += said["rewritten_data_files_count"]
        tally.added += said["added_data_files_count"]
        work.probe.at("lake.compacted")
        return
    raise work.failed(
        f"compaction lost against other writers {TRIES} times ({last})", "run the upkeep again when fewer are at work"
    )


def _deletes_rewritten(work: Work, rules: Rules, tally: _Tally) -> None:
    """Position deletes into one file for each data file; those of files that are gone are dropped."""
    sql = (
        f"CALL `{work.place.name}`.system.rewrite_position_delete_files("
        f"table => {_table(work)}, options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false'))"
    )
    for lost in range(TRIES):
        try:
            with turn(work) if rules.keyed or lost >= PATIENT else nullcontext():
                said = ask(work, sql)
        except Conflict:
            continue
        if not said["rewritten_delete_files_count"] and rules.deletes_wanted(taken(work.loaded()[0])):
            raise work.failed(
                "compaction merged no delete files, although there were too many",
                "run the upkeep again when fewer are at work; if it happens again, report it as a defect",
            )
        tally.deletes += said["rewritten_delete_files_count"]
        return
    raise work.failed(
        f"the merging of delete files lost against other writers {TRIES} times",
        "run the upkeep again when fewer are at work",
    )


def _done_by_others(work: Work, window: Window) -> bool:
    """Whether the window's files are there no more: another upkeep was first, or retention."""
    there = {entry.path for entry in taken(work.loaded()[0]).entries}
    return not there & {entry.path for entry in window.entries}


def rewrite_sql(work: Work, rules: Rules, window: Window) -> str:
    options = {
        # The window's files are chosen already; Spark's own taste would leave some of them out.
        "rewrite-all": "true",
        "target-file-size-bytes": str(rules.target),
        "partial-progress.enabled": "false",
        "remove-dangling-deletes": "true",
    }
    spelt = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    # Without a sort order the table's own is used.
    order = "" if rules.sorted_otherwise else f"sort_order => '{names.SEQ} ASC NULLS FIRST', "
    return (
        f"CALL `{work.place.name}`.system.rewrite_data_files(table => {_table(work)}, strategy => 'sort', {order}"
        f"where => '{names.SEQ} > {window.after} and {names.SEQ} <= {window.upto}', options => map({spelt}))"
    )


def _table(work: Work) -> str:
    return f"'`{work.place.namespace}`.`{work.table}`'"

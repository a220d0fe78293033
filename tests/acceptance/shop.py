"""A small shop on a real Postgres and the pipeline that syncs it: the ground of the acceptance tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.acceptance.compare import Comparison, compare
from tests.harness.faults import Command

PIPELINE = """
store: {store}
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {{type: files, directory: out}}
    slice_bytes: {slice_bytes}
    lease_seconds: {lease}
    streams:
      orders: {{cursor: updated_at, tiebreaker: id}}
"""


@dataclass
class Shop:
    """A database with orders, a pipeline file, the command."""

    url: str
    folder: Path
    command: Command

    @classmethod
    def open(
        cls,
        url: str,
        folder: Path,
        *,
        rows: int = 3000,
        slice_bytes: int = 65536,
        lease: float = 30,
        store: str = ".penstock/store.db",
        mover: str = "loop",
    ) -> Shop:
        shop = cls(url, folder, Command(folder, mover, {"DATABASE_URL": url}))
        shop.write("shop.yaml", store=store, slice_bytes=slice_bytes, lease=lease)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(
                """create table orders (id bigint primary key, customer_id int, amount numeric(12,2), note text,
                   updated_at timestamptz not null);
                   create index on orders (updated_at, id)"""
            )
        shop.arrive(1, rows)
        return shop

    def write(self, name: str, *, store: str, slice_bytes: int = 65536, lease: float = 30) -> None:
        (self.folder / name).write_text(PIPELINE.format(store=store, slice_bytes=slice_bytes, lease=lease))

    def arrive(self, first: int, last: int, *, at: int | None = None) -> None:
        """New orders, a second apart; or all at one moment, `at`, which `change` counts too.

        Once something has changed, new orders need a moment of their own: stamped before what was delivered, they
        would lie below the mark, where no cursor finds them.
        """
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(
                """insert into orders select g, mod(g, 97), mod(g * 7919, 100000) / 100.0, 'note ' || md5(g::text),
                   case when %s::int is null then timestamptz '2026-01-01 00:00+00' + g * interval '1 second'
                   else timestamptz '2026-02-01 00:00+00' + %s::int * interval '1 day' + g * interval '1 ms' end
                   from generate_series(%s::bigint, %s::bigint) g""",
                (at, at, first, last),
            )
            db.execute("analyze orders")

    def change(self, every: int, at: int) -> None:
        """Every so-manieth order is changed, at a moment after all before."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(
                """update orders set note = 'changed ' || %s, amount = amount + 1,
                   updated_at = timestamptz '2026-02-01 00:00+00' + %s * interval '1 day' + id * interval '1 ms'
                   where id %% %s = 0""",
                (at, at, every),
            )

    def compared(self) -> Comparison:
        return compare(
            self.url,
            "public.orders",
            key="id",
            version="updated_at",
            out=self.folder / "out",
            pipeline="shop",
            stream="orders",
        )

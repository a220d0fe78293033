-- The entities that a slice concerns, as they become. `existed`: in the table before; `alive`: exists now; `touched`: the
-- last segment that changed it; `wrote`, `born`: fields that were just written, for fan-outs that decide fields again.
CREATE TEMPORARY TABLE penstock_work (
    eid bigint PRIMARY KEY,
    existed boolean NOT NULL,
    alive boolean NOT NULL,
    was_early boolean NOT NULL,
    since timestamptz,
    touched integer NOT NULL DEFAULT -1,
    born boolean NOT NULL DEFAULT false,
    wrote integer[],
    {columns}
) ON COMMIT DROP;
CREATE TEMPORARY TABLE penstock_ends (
    eid bigint PRIMARY KEY, first_pos bigint, first_made bigint, made bigint, gone bigint
) ON COMMIT DROP;
CREATE TEMPORARY TABLE penstock_last (
    eid bigint, field integer, pos bigint, adds boolean, value text
) ON COMMIT DROP;
CREATE TEMPORARY TABLE penstock_since (eid bigint, at timestamptz) ON COMMIT DROP;
CREATE TEMPORARY TABLE penstock_fans (
    seq bigint, seg integer, fan_out integer, match text[], fields jsonb
) ON COMMIT DROP;
CREATE TEMPORARY TABLE penstock_spread (fan_out integer, match text[], fields jsonb) ON COMMIT DROP

-- What mode `state` keeps beside the tables of entities. `states`: the declared fields, as of the last slice; `early_ops`:
-- what is known of entities that no document has created yet; `fan_out_values`: the last values of each fan-out by match.
CREATE TABLE IF NOT EXISTS {schema}.states (
    pipeline text NOT NULL,
    stream text NOT NULL,
    layout text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, stream)
);
CREATE TABLE IF NOT EXISTS {schema}.early_ops (
    pipeline text NOT NULL,
    stream text NOT NULL,
    key text[] NOT NULL,
    since timestamptz NOT NULL,
    fields jsonb NOT NULL,
    PRIMARY KEY (pipeline, stream, key)
);
CREATE TABLE IF NOT EXISTS {schema}.fan_out_values (
    pipeline text NOT NULL,
    stream text NOT NULL,
    fan_out text NOT NULL,
    match text[] NOT NULL,
    fields jsonb NOT NULL,
    PRIMARY KEY (pipeline, stream, fan_out, match)
);
COMMENT ON TABLE {schema}.states IS 'penstock: streams in mode state, with their declared fields';
COMMENT ON TABLE {schema}.early_ops IS 'penstock: ops that wait for their entity';
COMMENT ON TABLE {schema}.fan_out_values IS 'penstock: last values of fan-outs, for entities that come later or move';

CREATE OR REPLACE FUNCTION {schema}.{name}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
{settings}
AS {body}

-- Why a column does not hold one of some values: the server's code, or nothing where it would change one; NULL: it does.
BEGIN
    CASE field {cases} ELSE RETURN NULL; END CASE;
    IF FOUND THEN RETURN ''; END IF;
    RETURN NULL;
EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
    RETURN SQLSTATE;
END

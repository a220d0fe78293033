-- Other tables hold rows of the same entities: TRUNCATE of this one deletes its own.
FOR each_row IN EXECUTE format('SELECT * FROM ONLY %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME) LOOP
{truncated}
END LOOP;

IF TG_OP = 'INSERT' THEN
{insert}
ELSIF TG_OP = 'DELETE' THEN
{delete}
ELSE
{update}
END IF;

"""PostgreSQL, as both sides meet it: connecting, naming things in SQL, types. No pyarrow until rows move."""

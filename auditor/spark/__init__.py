"""How an audit runs on Spark: the session, the jobs, the tables."""

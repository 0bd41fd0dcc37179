"""How an audit runs without Spark: in processes of this machine."""

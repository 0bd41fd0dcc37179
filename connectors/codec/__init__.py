"""One format a file: a buffer in, columns out. No Spark, no storage, no judgement."""

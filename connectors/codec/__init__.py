"""Kafka's file and record formats: bytes in, columns and rows out. No Spark, no storage, no judgement."""

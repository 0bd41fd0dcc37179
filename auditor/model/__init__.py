"""The reference model: what a correct broker does. Pure: no Spark, no files, no clock."""

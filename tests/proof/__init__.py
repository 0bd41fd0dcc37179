"""Proof by bytes: what Kafka answers to appends, against what an audit says of the log that they leave."""

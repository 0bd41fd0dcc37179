"""The models against Kafka's own classes: the same random histories are given to both, and everything is compared."""

"""The view that a rule gets: one log with its replicas, the coordinators' records and the cluster; and the Finding."""

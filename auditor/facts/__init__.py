"""What reading and replaying leaves of one copy of a partition: plain data with named columns."""

"""What reading and replaying leaves of one replica of a partition: plain data with named columns."""

"""Replay: the reference model run over each replica of a partition, in bounded memory."""

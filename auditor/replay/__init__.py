"""Replay: the reference model run over each copy of a partition, in bounded memory."""

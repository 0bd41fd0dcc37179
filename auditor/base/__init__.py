"""The bottom layer, without imports of ours: errors as values, limits, how kernels are compiled, the version."""

VERSION = "1.0.0"  # packaging reads it here, too

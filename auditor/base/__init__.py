"""The bottom layer, without imports of ours: errors as values, limits, how kernels are compiled, the version."""

VERSION = "0.1.0"  # packaging reads it here, too

"""The reference model: what a correct broker does, as audits ask it of logs. Pure: no Spark, no files, no clock.

What no log can hold is in :mod:`tests.reference`.
"""

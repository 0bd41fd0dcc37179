"""great-expectations suites over an audit's tables, built in code. Its telemetry is off before it is imported."""

import os

os.environ["GX_ANALYTICS_ENABLED"] = "false"

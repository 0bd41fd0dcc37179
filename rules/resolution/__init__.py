"""Findings after the rules: explanations, limits, conflicts between advices, fingerprints."""

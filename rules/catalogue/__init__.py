"""What a rule declares of itself, and the catalogue of all rules."""

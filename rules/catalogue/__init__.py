"""The catalogue of rules, and what each declares."""

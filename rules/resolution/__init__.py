"""What becomes of what rules found: what explains what, floods summed, advices that must not cross, fingerprints."""

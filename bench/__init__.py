"""Measurements, side by side with the tools that Kafka has."""

"""Mutants of real files against every decoder: seeded, so that a mutant is its kind, seed and number, nothing else.

Flipped bits seldom get past a checksum: :mod:`tests.fuzz.sealed_histories` writes extreme numbers first and seals them.

``python -m tests.fuzz --mutants N`` runs them; ``--help`` says how to look at one again. Input that ever made a decoder
fail is committed under ``finds/`` as ``<kind>=<what>`` and is read by every test run.
"""

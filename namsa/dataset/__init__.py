"""Datasets: manifest, factory, records, shards, and how they are verified, repaired and merged."""

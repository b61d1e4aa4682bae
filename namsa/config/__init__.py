"""Configuration of a simulation: one frozen pydantic tree, read from YAML."""

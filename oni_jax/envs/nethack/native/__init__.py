"""The games of a group stepped by one call in C, where the engine and this system are known: see `stepper`."""

"""The processor: instruction sets, features, rates that are measured, and code loaded into it."""

"""What every back end needs of the process it runs in: arrays, binding of sizes, calls, the cache."""

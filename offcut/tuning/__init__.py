"""Tuning: schedules proposed, measured, recorded, and the best one for a distribution of sizes."""

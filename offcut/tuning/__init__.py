"""Tuning: candidates compiled, checked and timed in processes of their own, and what is made of that."""

"""Arithmetic of symbolic sizes: extents in one form, their bounds, and sizes where none is known."""

"""A real sentence encoder over a real text, wholly in offcut: `make demo`.

Sequence lengths come as they come, alone or together, without padding: the case that one compiled
kernel for every size is for. `run.py` is the file to read first. Nothing is
imported here, because `__main__.py` must set the thread count before numpy is loaded.
"""

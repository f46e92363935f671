"""A real sentence encoder over a real text, its dense layers through offcut: `make demo`.

Sequence lengths come as they come, one sentence a call, no padding and no batching: the case
that one compiled kernel for every size is for. `run.py` is the file to read first. Nothing is
imported here, because `__main__.py` must set the thread count before numpy is loaded.
"""

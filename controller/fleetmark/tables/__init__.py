"""Tables: the raw files of a run -> Parquet rows, rebuildable at any time.

`planned`, `journals` and `schema` need no table engine, so `watch` reads with them too.
"""

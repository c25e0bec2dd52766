"""Analysis: pure functions over table rows, values in and values out."""

"""Linear models over labels and values, and the search for candidates."""

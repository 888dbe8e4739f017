"""The served benchmark: our server beside others, cell by cell, in one run. README.md explains."""

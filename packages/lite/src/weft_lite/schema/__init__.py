"""The schema of `.weftlite` files: `lite.fbs` for other languages, `tables` for Python."""

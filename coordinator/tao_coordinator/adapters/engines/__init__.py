"""What inference engines say of themselves, one engine per file; `catalogue.py` picks."""

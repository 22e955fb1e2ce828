"""The absolute encodings, one module for each chapter."""

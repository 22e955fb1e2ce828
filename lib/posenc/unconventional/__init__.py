"""The unconventional encodings, one module for each chapter."""

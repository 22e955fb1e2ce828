"""The relative encodings, one module for each chapter."""

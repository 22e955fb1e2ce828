"""What every test of the library shares: the import path, one thread, and Hypothesis."""

import sys
from pathlib import Path

import torch
from hypothesis import settings

# `tests.agreement` is imported by its name, here and by the book
sys.path.insert(0, str(Path(__file__).parents[1]))
torch.set_num_threads(1)
# the same examples every time, however slow the machine
settings.register_profile("book", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("book")

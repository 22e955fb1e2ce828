"""The letters that all derivations share, with the book's one notation.

Vectors are rows: x_i is 1×d, and a projection acts from the right, q_i = x_i W_Q.
"""

from __future__ import annotations

import sympy

from .words import Letter, index_symbol

n, d, d_h, d_v = sympy.symbols("n d d_h d_v", integer=True, positive=True)
"""Sequence length; model width; width of a query and key; width of a value."""

x_i = Letter("x_i", 1, d)
x_j = Letter("x_j", 1, d)
p_i = Letter("p_i", 1, d)
p_j = Letter("p_j", 1, d)

W_Q = Letter("W_Q", d, d_h)
W_K = Letter("W_K", d, d_h)
W_V = Letter("W_V", d, d_v)

q_i = Letter("q_i", 1, d_h)
k_j = Letter("k_j", 1, d_h)
v_j = Letter("v_j", 1, d_v)
v = Letter("v", 1, d_v)

i, j = index_symbol("i"), index_symbol("j")
a_ij = sympy.IndexedBase("a")[i, j]
"""The attention weight of query i on key j: a number."""

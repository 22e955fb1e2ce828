"""The four terms and the two paths, against loops and against `Attention`."""

from __future__ import annotations

import pytest
import torch
from tests.encodings import draw, weights
from torch import Tensor

from posenc import At, Attention, Encoding, Sinusoidal, example
from posenc.relative.expansion import four_terms, two_paths

N, DIM, HEAD_DIM, VALUE_DIM = 5, 6, 4, 3
X, P = draw(N, DIM), draw(N, DIM, seed=1)
W_Q, W_K, W_V = draw(DIM, HEAD_DIM, seed=2), draw(DIM, HEAD_DIM, seed=3), draw(DIM, 3, seed=4)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_each_term_is_its_product_of_a_query_and_a_key():
    terms = four_terms(X, P, W_Q, W_K)
    assert terms._fields == (
        "content_content",
        "content_position",
        "position_content",
        "position_position",
    )
    for term, left, right in zip(terms, (X, X, P, P), (X, P, X, P), strict=True):
        for i in range(N):
            for j in range(N):
                close(term[i, j], (left[i] @ W_Q) @ (right[j] @ W_K))


def test_the_terms_add_up():
    close(sum(four_terms(X, P, W_Q, W_K)), (X + P) @ W_Q @ ((X + P) @ W_K).T)


def test_the_paths_are_those_of_content_and_position_and_add_up():
    a = torch.softmax(draw(7, N, seed=5), -1)
    paths = two_paths(a, X, P, W_V)
    assert paths._fields == ("content", "position")
    close(paths.content, torch.einsum("ij,jd,dv->iv", a, X, W_V))
    close(paths.position, torch.einsum("ij,jd,dv->iv", a, P, W_V))
    close(sum(paths), a @ (X + P) @ W_V)


def test_batches_go_in_front():
    x = draw(2, 3, N, DIM, seed=6)
    a = torch.softmax(draw(2, 3, 7, N, seed=5), -1)
    for s in range(2):
        for t in range(3):
            for batched, one in zip(
                (*torch.broadcast_tensors(*four_terms(x, P, W_Q, W_K)), *two_paths(a, x, P, W_V)),
                (*four_terms(x[s, t], P, W_Q, W_K), *two_paths(a[s, t], x[s, t], P, W_V)),
                strict=True,
            ):
                close(batched[s, t], one)


def test_attention_computes_the_sum_of_the_terms_and_of_the_paths():
    class Keeps(Encoding):
        def score(self, q, k, at, project=None):
            self.logits = super().score(q, k, at, project)
            return self.logits

    heads, keeps = 2, Keeps()
    layer = weights(Attention(DIM, heads, keeps, head_dim=HEAD_DIM, value_dim=VALUE_DIM)).double()
    at, p = At.sequence(N, causal=True), Sinusoidal(DIM).vectors(torch.arange(N))
    y = layer((X + p)[None], at)
    o = []
    for h in range(heads):
        W_Qh, W_Kh = (w.weight.T.unflatten(1, (heads, -1))[:, h] for w in (layer.W_Q, layer.W_K))
        W_Vh = layer.W_V.weight.T.unflatten(1, (heads, -1))[:, h]
        logits = sum(four_terms(X, p, W_Qh, W_Kh)) * HEAD_DIM**-0.5
        close(keeps.logits[0, h], logits)
        a = torch.softmax(logits.masked_fill(~at.visible[0], -torch.inf), -1)
        o.append(sum(two_paths(a, X, p, W_Vh)))
    close(y[0], torch.cat(o, -1) @ layer.W_O.weight.T)


def test_no_matrix_of_the_worked_example_hides_a_transposition():
    for W in (example.W_Q(), example.W_K(), example.W_V()):
        assert W.shape == (4, 4) and W.dtype == torch.float64
        assert (W - W.T)[~torch.eye(4, dtype=torch.bool)].abs().min() > 0
        assert torch.linalg.matrix_rank(W) == 4
    assert example.x().shape == (len(example.TOKENS), 4)
    x, P = example.x(), Sinusoidal(4).vectors(torch.arange(3))
    terms = four_terms(x, P, example.W_Q(), example.W_K())
    for term in terms:
        assert (term - term.T).abs().max() > 0.01


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: four_terms(X[:4], P, W_Q, W_K), r"x and p must be .*\(4, 6\) and \(5, 6\)"),
        (lambda: four_terms(X, P[:, :4], W_Q, W_K), r"x and p must be .*\(5, 6\) and \(5, 4\)"),
        (lambda: four_terms(X[0], P[0], W_Q, W_K), r"x and p must be .*\(6,\)"),
        (lambda: four_terms(X, P, W_Q, W_K[:, :3]), r"W_Q and W_K must both be \(6, head_dim\)"),
        (lambda: four_terms(X, P, W_Q.T, W_K.T), r"W_Q and W_K must both be .*\(4, 6\)"),
        (lambda: two_paths(draw(N, 4), X, P, W_V), r"weights, x and p must be .*\(5, 4\)"),
        (lambda: two_paths(draw(N, N), X, P[:4], W_V), r"weights, x and p must be .*\(4, 6\)"),
        (lambda: two_paths(draw(6), X[0], P[0], W_V), r"weights, x and p must be .*\(6,\)"),
        (lambda: two_paths(draw(N, N), X, P, W_V.T), r"W_V must be \(6, value_dim\).*\(3, 6\)"),
    ],
)
def test_wrong_sizes_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()

"""The experiment: an ensemble is its members one by one, its task, and its intervals."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor
from torch.func import functional_call

from posenc import (
    At,
    Dynamics,
    Encoding,
    Floater,
    Recurrent,
    Recursive,
    Rotary,
    Sinusoidal,
    Trainable,
    Transformer,
)
from posenc.experiment import (
    GAP,
    T_975,
    VOCABULARY,
    Ensemble,
    gap,
    interval,
    operations,
    peak_memory,
    previous,
)
from tests.encodings import draw

SEEDS, DIM, BATCH, LENGTH, RATE = 3, 6, 4, 5, 3e-3

ENCODINGS = {
    "none": lambda dim: Encoding(),
    "sinusoidal": Sinusoidal,
    "sinusoidal concatenate": lambda dim: Sinusoidal(dim // 2, combine="concatenate"),
    "trainable": lambda dim: Trainable(dim, 9, std=1.0),
    "recursive": Recursive,
    "recurrent": Recurrent,
    "floater": lambda dim: Floater(dim, dynamics=Dynamics(dim, torch.tanh)),
    "rotary learned": lambda dim: Rotary(dim, learned=True),
}
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


def ensemble(name: str = "trainable", seeds: int = SEEDS, exact: bool = False) -> Ensemble:
    built = Ensemble(ENCODINGS[name], dim=DIM, seeds=seeds)
    if exact:
        built.parameters = {
            name: p.detach().double().requires_grad_() for name, p in built.parameters.items()
        }
    return built


def train(built: Ensemble, steps: int = 5) -> Ensemble:
    run = built.train(LENGTH, steps=steps, batch=BATCH, rate=RATE)
    assert list(run) == list(range(1, steps + 1))
    return built


def close(ours: Tensor, theirs: Tensor, atol: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def values(built: Ensemble) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in built.parameters.items()}


# side by side is one by one


@every_encoding
def test_the_logits_are_those_of_the_members(name):
    built, tokens = train(ensemble(name)), torch.arange(3 * 2 * LENGTH).reshape(3, 2, LENGTH) % 7
    at = At.sequence(LENGTH)
    y = built.logits(tokens, at)
    assert y.shape == (3, 2, LENGTH, VOCABULARY)
    for seed in range(3):
        close(y[seed], built.trained(seed)(tokens[seed], at), 1e-5)
        assert (y[seed] - built.models[seed](tokens[seed], at)).abs().max() > 1e-4
        assert (y[seed] - y[seed - 1]).abs().max() > 1e-2


def by_hand(built: Ensemble, seed: int, steps: int) -> dict[str, Tensor]:
    """One member trained alone, as the docstring says."""
    model = copy.deepcopy(built.models[seed]).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=1.0)
    generator = torch.Generator().manual_seed(1000 + seed)
    for step in range(steps):
        warm = (step + 1) / 20 if step < 20 else 1.0
        optimiser.param_groups[0]["lr"] = RATE * warm * (steps - step) / steps
        tokens = torch.randint(8, (BATCH, LENGTH), generator=generator)
        y, loss = model(tokens, At.sequence(LENGTH)), 0.0
        for s in range(BATCH):
            for k in range(1, LENGTH):
                loss = loss - y[s, k].log_softmax(-1)[tokens[s, k - 1]]
        optimiser.zero_grad()
        (loss / (BATCH * (LENGTH - 1))).backward()
        optimiser.step()
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("name", "steps"),
    [("trainable", 24), ("sinusoidal", 5), ("recursive", 5), ("rotary learned", 5)],
)
def test_training_side_by_side_is_training_one_by_one(name, steps):
    built = ensemble(name, exact=True)
    before = values(built)
    train(built, steps)
    for seed in range(SEEDS):
        alone = by_hand(built, seed, steps)
        assert set(alone) == set(built.parameters)
        for key, p in alone.items():
            close(built.parameters[key][seed].detach(), p, 1e-9)
        assert max((built.parameters[k][seed] - before[k][seed]).abs().max() for k in alone) > 1e-3


def test_training_learns():
    built = Ensemble(Recurrent, dim=16, seeds=2)
    before = built.accuracy(6)
    for _ in built.train(6, steps=120, batch=16, rate=1e-2):
        pass
    after = built.accuracy(6)
    assert before.shape == after.shape == (2, 5)
    assert (before.mean(1) < 0.3).all() and (after.mean(1) > 0.6).all()


@every_encoding
def test_one_member_that_breaks_does_not_touch_the_others(name):
    whole, broken = ensemble(name), ensemble(name)
    with torch.no_grad():
        broken.parameters["blocks.0.attention.W_Q.weight"][1, 0, 0] = math.nan
    train(whole)
    train(broken)
    for key, p in broken.parameters.items():
        assert torch.equal(p[[0, 2]], whole.parameters[key][[0, 2]])
    tokens = torch.arange(SEEDS * 2 * LENGTH).reshape(SEEDS, 2, LENGTH) % 7
    y = broken.logits(tokens, At.sequence(LENGTH))
    assert y[1].isnan().all() and y[[0, 2]].isfinite().all()
    assert broken.parameters["head.weight"][1].isnan().any()


def test_a_member_does_not_know_how_many_others_there_are():
    few, many = train(ensemble(exact=True)), train(ensemble(seeds=5, exact=True))
    for key, p in few.parameters.items():
        assert many.parameters[key].shape == (5, *p.shape[1:])
        close(many.parameters[key][:SEEDS].detach(), p.detach(), 1e-12)


def test_an_ensemble_of_given_models_goes_on_from_them():
    first = train(ensemble())
    models = [first.trained(seed) for seed in range(SEEDS)]
    for model in models:  # that may have been changed, as here by a longer table
        model.blocks[0].attention.encoding = model.blocks[0].attention.encoding.longer(12)
    second, at = Ensemble.of(models), At.sequence(LENGTH)
    tokens = torch.arange(SEEDS * 2 * LENGTH).reshape(SEEDS, 2, LENGTH) % 7
    y = second.logits(tokens, at)
    close(y, first.logits(tokens, at), 1e-6)
    assert torch.equal(second.accuracy(LENGTH), first.accuracy(LENGTH))
    assert second.accuracy(12).shape == (SEEDS, 11)
    before, given = values(first), [copy.deepcopy(model.state_dict()) for model in models]
    train(second)
    assert (second.logits(tokens, at) - y).abs().max() > 1e-3
    assert all(torch.equal(p, before[name]) for name, p in first.parameters.items())
    for seed, model in enumerate(models):
        close(model(tokens[seed], at), y[seed], 1e-5)
        assert all(torch.equal(p, given[seed][name]) for name, p in model.state_dict().items())


def test_the_texts_may_start_anywhere():
    """A sinusoid that is concatenated moves with the start, and a rotation does not."""
    for name, changes in (("sinusoidal concatenate", True), ("rotary learned", False)):
        built = train(ensemble(name, exact=True))
        near, far = (built.accuracy(LENGTH, start=start) for start in (0, 40))
        assert torch.equal(near, far) is not changes
    table = ensemble("trainable")
    assert table.accuracy(LENGTH, start=4).shape == (SEEDS, LENGTH - 1)
    with pytest.raises(ValueError, match="below max_length = 9, but 9 is among them"):
        table.accuracy(LENGTH, start=5)


# seeds


@every_encoding
def test_a_member_is_the_model_that_its_seed_makes(name):
    built = ensemble(name)
    for seed in range(SEEDS):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Transformer(8, DIM, 1, 1, ENCODINGS[name](DIM), outputs=8)
        assert {n for n, _ in model.named_parameters()} == set(built.parameters)
        for key, p in model.named_parameters():
            assert torch.equal(built.parameters[key][seed], p)
            assert torch.equal(dict(built.models[seed].named_parameters())[key], p)
    assert not torch.equal(built.parameters["head.weight"][0], built.parameters["head.weight"][1])


def test_a_run_can_be_repeated():
    runs = [train(ensemble()) for _ in range(2)]
    for key, p in runs[0].parameters.items():
        assert torch.equal(p, runs[1].parameters[key])
    assert torch.equal(runs[0].accuracy(LENGTH), runs[1].accuracy(LENGTH))
    assert torch.equal(runs[0].accuracy(LENGTH), runs[0].accuracy(LENGTH))


def test_torchs_own_random_numbers_are_left_alone():
    torch.manual_seed(77)
    state = torch.get_rng_state()
    built = ensemble("recursive")
    assert torch.equal(torch.get_rng_state(), state)
    train(built)
    built.accuracy(LENGTH)
    built.trained(1)
    assert torch.equal(torch.get_rng_state(), state)
    drawn = torch.rand(3)
    torch.manual_seed(77)
    assert torch.equal(torch.rand(3), drawn)


def test_steps_are_made_only_when_they_are_asked_for():
    built = ensemble()
    before = values(built)
    run = built.train(LENGTH, steps=5, batch=BATCH)
    for expected in (0, 1, 2):
        if expected:
            assert next(run) == expected
        changed = any(not torch.equal(p, before[n]) for n, p in built.parameters.items())
        assert changed is (expected > 0)
        before = values(built)


def test_a_trained_member_is_a_copy():
    built, tokens = train(ensemble()), torch.tensor([[3, 1, 4, 1, 5]])
    before, y = values(built), built.trained(1)(tokens, At.sequence(LENGTH)).detach()
    model = built.trained(1)
    assert all(torch.equal(p, before[name][1]) for name, p in model.named_parameters())
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(7.0)
    assert all(torch.equal(p, before[name]) for name, p in built.parameters.items())
    assert torch.equal(built.trained(1)(tokens, At.sequence(LENGTH)), y)


# the task


class Oracle(Ensemble):
    """Names the token that is `back` places before, or a wrong one at the position `wrong`."""

    back, wrong = 1, None

    def logits(self, tokens: Tensor, at: At) -> Tensor:
        self.tokens, self.at = tokens, at
        named = tokens.roll(self.back, -1)
        if self.wrong is not None:
            named[:, :, self.wrong] += 1
        # the parameters come in with a factor of 0, for something to train
        nothing = 0 * sum(p.sum() for p in self.parameters.values())
        return 30.0 * F.one_hot(named % VOCABULARY, VOCABULARY) + nothing


def oracle(back: int = 1, wrong: int | None = None) -> Oracle:
    built = Oracle(Sinusoidal, dim=DIM, seeds=SEEDS)
    built.back, built.wrong = back, wrong
    return built


def test_right_is_who_names_the_token_before():
    built = oracle()
    right = built.accuracy(LENGTH)
    assert right.shape == (SEEDS, LENGTH - 1) and right.dtype == torch.float64
    assert (right == 1).all()
    assert built.tokens.shape == (SEEDS, 256, LENGTH)
    assert torch.equal(built.at.query, torch.arange(LENGTH)[None])
    for start in (0, 11):
        built.accuracy(LENGTH, start=start)
        assert torch.equal(built.at.query, torch.arange(start, start + LENGTH)[None])
        assert torch.equal(built.at.key, built.at.query) and built.at.visible is None
    for back in (0, 2, -1):
        guessed = oracle(back).accuracy(LENGTH)
        assert (guessed < 0.3).all()
        assert guessed[:, 1:-1].mean().item() == pytest.approx(1 / VOCABULARY, abs=0.04)


@pytest.mark.parametrize("wrong", range(LENGTH))
def test_accuracy_is_told_for_each_position_from_1_on(wrong):
    right = oracle(wrong=wrong).accuracy(LENGTH)
    expected = torch.ones(SEEDS, LENGTH - 1, dtype=torch.float64)
    if wrong:  # nothing is asked of position 0
        expected[:, wrong - 1] = 0
    assert torch.equal(right, expected)


def test_each_member_is_measured_by_its_own_answers():
    class OneIsWrong(Oracle):
        def logits(self, tokens: Tensor, at: At) -> Tensor:
            y = super().logits(tokens, at)
            return torch.where(torch.tensor([0, 1, 0])[:, None, None, None] == 1, -y, y)

    right = OneIsWrong(Sinusoidal, dim=DIM, seeds=SEEDS).accuracy(LENGTH)
    assert (right[[0, 2]] == 1).all() and (right[1] == 0).all()


def test_accuracy_counts_among_as_many_texts_as_asked_for():
    built = oracle(back=2)
    right = built.accuracy(7, batch=50)
    assert built.tokens.shape == (SEEDS, 50, 7)
    for s in range(SEEDS):
        for k in range(1, 7):
            hits = sum(built.tokens[s, b, k - 2] == built.tokens[s, b, k - 1] for b in range(50))
            assert right[s, k - 1].item() == pytest.approx(int(hits) / 50)


def test_members_see_different_tokens_and_are_measured_on_new_ones():
    built, seen = oracle(), []
    for _ in built.train(LENGTH, steps=3, batch=BATCH):
        seen.append(built.tokens)
    assert len(seen) == 3 and all(t.shape == (SEEDS, BATCH, LENGTH) for t in seen)
    built.accuracy(LENGTH, batch=BATCH)
    drawn = [tokens[s] for tokens in (*seen, built.tokens) for s in range(SEEDS)]
    for i, first in enumerate(drawn):
        assert not any(torch.equal(first, second) for second in drawn[:i])
    every = torch.stack(drawn)
    assert every.min() == 0 and every.max() == VOCABULARY - 1


def test_training_asks_for_the_token_before(monkeypatch):
    """With the right answers the loss is nothing, and with others it is not."""
    losses, cross_entropy = [], F.cross_entropy

    def watched(y: Tensor, tokens: Tensor) -> Tensor:
        losses.append(cross_entropy(y, tokens))
        return losses[-1]

    monkeypatch.setattr(F, "cross_entropy", watched)
    for back in (1, 0, 2):
        next(oracle(back).train(LENGTH, steps=1, batch=BATCH))
    assert losses[0] < 1e-9 and losses[1] > 10 and losses[2] > 10


def test_without_position_nobody_can_know():
    """The same token comes twice and is asked for twice: one answer cannot be right for both."""
    built = train(ensemble("none"))
    tokens = torch.tensor([[2, 5, 6, 5, 1]]).expand(SEEDS, 1, LENGTH)
    y = built.logits(tokens, At.sequence(LENGTH))
    close(y[:, :, 1], y[:, :, 3], 1e-6)


# intervals


@pytest.mark.parametrize("seeds", range(2, 11))
def test_the_quantiles_are_students(seeds):
    assert T_975[seeds] == pytest.approx(stats.t.ppf(0.975, seeds - 1), abs=5.1e-4)
    assert sorted(T_975) == list(range(2, 11))


def test_an_interval_by_hand():
    mean, low, high = interval(torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64))
    # the variance is (4 + 1 + 9) / 2 = 7
    spread = 4.303 * math.sqrt(7) / math.sqrt(3)
    assert mean.item() == pytest.approx(3, abs=1e-12)
    assert low.item() == pytest.approx(3 - spread, abs=1e-12)
    assert high.item() == pytest.approx(3 + spread, abs=1e-12)


@pytest.mark.parametrize("seeds", [2, 5, 10])
def test_an_interval_is_scipys_in_every_entry(seeds):
    runs = draw(seeds, 3, 4)
    mean, low, high = interval(runs)
    assert mean.shape == low.shape == high.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            one = runs[:, i, j].numpy()
            expected = stats.t.interval(0.95, seeds - 1, one.mean(), stats.sem(one))
            assert mean[i, j].item() == pytest.approx(one.mean())
            assert (low[i, j].item(), high[i, j].item()) == pytest.approx(expected, rel=2e-3)


def test_runs_that_agree_have_an_interval_of_no_width():
    for end in interval(torch.full((4, 3), 0.25, dtype=torch.float64)):
        assert (end == 0.25).all()


# tasks


def generators(seeds: int = 2) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(seeds)]


def test_previous_asks_for_the_token_before():
    tokens, targets = previous(generators(), 3, 5)
    assert tokens.shape == targets.shape == (2, 3, 5)
    assert torch.equal(targets[..., 1:], tokens[..., :-1]) and (targets[..., 0] == -1).all()


@pytest.mark.parametrize(("length", "start"), [(3, 0), (4, 1), (7, 5), (8, 0)])
def test_gap_asks_for_a_neighbour_that_only_the_position_tells(length, start):
    tokens, targets = gap(generators(), 200, length, start)
    assert ((tokens == GAP).sum(-1) == 1).all() and torch.equal(tokens == GAP, targets >= 0)
    seen = set()
    texts, answers = tokens.flatten(0, 1).tolist(), targets.flatten(0, 1).tolist()
    for text, asked in zip(texts, answers, strict=True):
        place = text.index(GAP)
        seen.add(place)
        even = (start + place) % 2 == 0
        assert asked[place] == text[place - 1 if even else place + 1] < VOCABULARY
    assert seen == set(range(1, length - 1))


def test_an_ensemble_of_other_models_learns_another_task():
    """With a table for four places, one layer finds the gap's neighbour; accuracy is by place."""
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        table = Trainable(16, 4, std=1.0)
        models.append(Transformer(VOCABULARY + 1, 16, 1, 1, table, outputs=VOCABULARY + 1))
    built = Ensemble.of(models, gap)
    before = built.accuracy(4)
    for _ in built.train(4, steps=150, batch=32, rate=1e-2):
        pass
    after = built.accuracy(4)
    assert before.shape == after.shape == (2, 2)
    assert (before < 0.5).all() and (after > 0.9).all()


def test_the_steps_begin_at_one_position_after_the_other():
    built, seen = Ensemble(Sinusoidal, dim=6, seeds=2), []

    def task(generators, batch, length, start):
        seen.append(start)
        return previous(generators, batch, length, start)

    built.task = task
    inside, places = built.logits, []
    built.logits = lambda tokens, at: (places.append(at.query[0, 0].item()), inside(tokens, at))[1]
    for _ in built.train(4, steps=5, starts=3):
        pass
    built.accuracy(4, start=7)
    assert seen == places == [0, 1, 2, 0, 1, 7]


# memory


def test_peak_memory_is_what_is_held_at_one_time():
    def chain(x: Tensor) -> Tensor:
        a = x + 1
        b = a * 2
        del a
        return b + 3

    x = torch.zeros(1000)
    assert peak_memory(lambda: None) == 0
    assert peak_memory(lambda: x + 1) == 4000
    assert peak_memory(lambda: chain(x)) == 8000
    assert peak_memory(lambda: [x + 1 for _ in range(5)]) == 20000
    assert peak_memory(lambda: (x + 1).view(10, 100).T[:5]) == 4000  # views hold nothing
    assert peak_memory(lambda: (x + 1).add_(1)) == 4000
    assert peak_memory(lambda: x.view(10, 100).add_(0)) == 0  # what was given is not counted
    assert peak_memory(lambda: x.double() + x.double()) == 24000
    assert peak_memory(lambda: torch.topk(x, 10)) == 10 * (4 + 8)


# operations


def test_operations_are_counted_whatever_their_size():
    small, large = torch.ones(2, 2), torch.ones(60, 60)
    for x in (small, large):
        assert operations(lambda: None) == 0
        assert operations(lambda x=x: x @ x) == 1
        assert operations(lambda x=x: [x + 1 for _ in range(5)]) == 5
    assert operations(lambda: small @ small) == 1  # counted anew


@pytest.mark.parametrize("name", ["trainable", "sinusoidal", "recursive", "floater"])
def test_walks_from_position_to_position_cost_as_much_for_every_step(name):
    encoding = ENCODINGS[name](DIM)
    counts = [operations(lambda n=n: encoding.vectors(torch.arange(n))) for n in range(1, 10)]
    grown = {later - earlier for earlier, later in pairwise(counts)}
    assert len(grown) == 1
    assert (grown.pop() > 0) is (name in ("recursive", "floater"))


# wrong input


def of_kind(encoding):
    return Ensemble(encoding, seeds=1).models[0]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Ensemble(Sinusoidal, dim=0), ValueError, "dim must be 1 or more, but is 0"),
        (lambda: Ensemble(Sinusoidal, seeds=0), ValueError, "seeds must be 1 or more, but is 0"),
        (lambda: Ensemble(Sinusoidal, seeds=-2), ValueError, "seeds must be 1 or more, but is -2"),
        (lambda: Ensemble(Sinusoidal, dim=8.0), TypeError, "dim must be a whole number"),
        (lambda: Ensemble(Sinusoidal, seeds=2.0), TypeError, "seeds must be a whole"),
        (
            lambda: Ensemble(Sinusoidal(32)),
            ValueError,
            "encoding must be a function that makes one, such as lambda dim: .*Sinusoidal.32",
        ),
        (
            lambda: Ensemble.of(
                [
                    of_kind(lambda d: Sinusoidal(d)),
                    of_kind(lambda d: Sinusoidal(d, combine="multiply")),
                ]
            ),
            ValueError,
            "models of one kind, but these differ",
        ),
        (
            lambda: Ensemble.of(
                [of_kind(lambda d: Trainable(d, 3)), of_kind(lambda d: Trainable(d, 4))]
            ),
            ValueError,
            "models of one kind, but these differ",
        ),
        (lambda: gap(generators(), 1, 2), ValueError, "length must be 3 or more, but is 2"),
        (
            lambda: next(Ensemble(Sinusoidal).train(4, starts=0)),
            ValueError,
            "starts must be 1 or more, but is 0",
        ),
        (lambda: Ensemble(Sinusoidal).accuracy(1), ValueError, "length must be 2 or more"),
        (lambda: Ensemble(Sinusoidal).accuracy(8, batch=0), ValueError, "batch must be 1 or more"),
        (lambda: next(Ensemble(Sinusoidal).train(1)), ValueError, "length must be 2 or more"),
        (
            lambda: Ensemble.of([]),
            ValueError,
            "an ensemble needs one model or more",
        ),
        (lambda: interval(torch.zeros(1, 3)), ValueError, "from 2 to 10 runs, but hold 1"),
        (lambda: interval(torch.zeros(11)), ValueError, "from 2 to 10 runs, but hold 11"),
        (
            lambda: Ensemble(lambda dim: Sinusoidal(dim, combine="concatenate"), dim=6),
            ValueError,
            "of 6 channels they would get 0",
        ),
    ],
)
def test_wrong_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_the_table_of_a_member_has_an_end_here_as_well():
    built = ensemble("trainable")
    with pytest.raises(ValueError, match="below max_length = 9, but 9 is among them"):
        built.accuracy(10)
    assert built.accuracy(9).shape == (SEEDS, 8)


def test_the_model_that_shows_the_way_holds_no_numbers():
    """`logits` reads the parameters that are trained, and never those of the first member."""
    built, at = ensemble(), At.sequence(LENGTH)
    tokens = torch.arange(SEEDS * LENGTH).reshape(SEEDS, 1, LENGTH) % 7
    y = built.logits(tokens, at)
    with torch.no_grad():
        for p in built.models[0].parameters():
            p.fill_(math.nan)
    assert torch.equal(built.logits(tokens, at), y)
    own = {name: p[2] for name, p in built.parameters.items()}
    close(y[2], functional_call(built.models[1], own, (tokens[2], at)), 1e-5)


def test_threads_are_given_back():
    """One thread while a step runs, as many as before while the caller does."""
    before, seen = torch.get_num_threads(), []
    ensemble = Ensemble(lambda dim: Sinusoidal(dim), seeds=2)
    inside = ensemble.logits
    ensemble.logits = lambda *arguments: (seen.append(torch.get_num_threads()), inside(*arguments))[
        1
    ]
    for _ in ensemble.train(4, steps=2):
        assert torch.get_num_threads() == before
    ensemble.accuracy(4, batch=2)
    assert seen == [1, 1, 1] and torch.get_num_threads() == before

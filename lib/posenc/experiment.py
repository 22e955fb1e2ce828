"""Small experiments: a task, and several seeds of one model, trained side by side.

The first task is to say the previous token: random tokens come in, and position k has to name the
token at k − 1. Without position a bidirectional model cannot know which token that is. The second
is to fill a gap: what belongs there is one of its two neighbours, and which one is told by the
position of the gap alone.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .checks import require, require_size
from .encoding import At, Encoding
from .model import Transformer

VOCABULARY = 8
"""Number of different tokens; who guesses blindly is right once in 8."""

GAP = VOCABULARY
"""The token that stands for a missing one."""

Task = Callable[[Sequence[torch.Generator], int, int, int], tuple[Tensor, Tensor]]
"""From a generator for each seed, a batch, a length and the position of the first token to tokens
and targets, int64 both, (seeds, batch, length). A target of −1 stands where nothing is asked."""


def previous(
    generators: Sequence[torch.Generator], batch: int, length: int, start: int = 0
) -> tuple[Tensor, Tensor]:
    """Random tokens; each but the first has to name the one before it."""
    tokens = _draw(generators, batch, length)
    targets = tokens.roll(1, -1)
    targets[..., 0] = -1
    return tokens, targets


def gap(
    generators: Sequence[torch.Generator], batch: int, length: int, start: int = 0
) -> tuple[Tensor, Tensor]:
    """Random tokens with one gap, not at an end: what belongs there is a neighbour's token.

    At even positions that is the neighbour before it, at odd ones the one behind.
    """
    require_size("length", length, least=3)
    tokens = _draw(generators, batch, length)
    ends = 1, length - 1
    place = torch.stack([torch.randint(*ends, (batch, 1), generator=g) for g in generators])
    neighbour = torch.where((start + place) % 2 == 0, place - 1, place + 1)
    targets = torch.full_like(tokens, -1).scatter(-1, place, tokens.gather(-1, neighbour))
    return tokens.scatter(-1, place, GAP), targets


class Ensemble:
    """Models of one kind, one for each seed, that train side by side and know no other.

    Transformers of one bidirectional layer with one head, which name the previous token; `of` takes
    other models and tasks. The seeds differ in their first weights and in the tokens they see. vmap
    runs them as one model with one more axis, as fast as one of them, nearly.

    Args:
        encoding: makes the encoding of a model of width dim; called once for each seed.
        dim: width of the model.
        seeds: how many models.

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(
        self, encoding: Callable[[int], Encoding], *, dim: int = 32, seeds: int = 5
    ) -> None:
        require(
            callable(encoding) and not isinstance(encoding, nn.Module),
            "encoding must be a function that makes one, such as lambda dim: Sinusoidal(dim), but "
            f"is {encoding!r}",
        )
        require_size("dim", dim)
        require_size("seeds", seeds)
        models = []
        for seed in range(seeds):
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(seed)
                model = Transformer(VOCABULARY, dim, 1, 1, encoding(dim), outputs=VOCABULARY)
            models.append(model)
        self._stack(models)

    @classmethod
    def of(cls, models: Sequence[nn.Module], task: Task = previous) -> Ensemble:
        """An ensemble of these models, one for each seed, which map tokens and At to logits.

        Raises:
            ValueError: there are none, or they are not of one kind.
        """
        require(len(models) > 0, "an ensemble needs one model or more, but models is empty")
        kinds = {_kind(model) for model in models}
        require(len(kinds) == 1, "an ensemble needs models of one kind, but these differ")
        ensemble = cls.__new__(cls)
        ensemble._stack(models, task)
        return ensemble

    def _stack(self, models: Sequence[nn.Module], task: Task = previous) -> None:
        self.models, self.task = list(models), task
        self.parameters, self._buffers = stack_module_state(self.models)  # each (seeds, …)
        self._shape = copy.deepcopy(self.models[0]).to("meta")

    def logits(self, tokens: Tensor, at: At) -> Tensor:
        """(seeds, batch, n) → (seeds, batch, n, tokens to choose from)."""
        state = {**self.parameters, **self._buffers}
        return torch.vmap(lambda s, t: functional_call(self._shape, s, (t, at)))(state, tokens)

    def train(
        self,
        length: int,
        *,
        steps: int = 200,
        batch: int = 16,
        rate: float = 5e-3,
        starts: int = 1,
    ) -> Iterator[int]:
        """Train on sequences of one length: an iterator over the steps, each done when it is given.

        Adam, warmed up over 20 steps and then slowed down linearly to nothing. What a seed reads
        depends on the seed, the length and the batch only: another call reads the same texts.

        Args:
            starts: step s reads texts whose first token is at position s modulo starts.
        """
        require_size("length", length, least=2)
        require_size("starts", starts)
        optimiser = torch.optim.Adam(self.parameters.values())
        generators = [torch.Generator().manual_seed(1000 + s) for s in range(len(self.models))]
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1, (step + 1) / 20) * (1 - step / steps)
            start = step % starts
            at = At.of(torch.arange(start, start + length)[None])
            tokens, targets = self.task(generators, batch, length, start)
            asked = targets >= 0  # the same number for each seed
            with _one_thread():
                y = self.logits(tokens, at)[asked]  # (what is asked of all seeds, tokens)
                loss = F.cross_entropy(y, targets[asked])
                optimiser.zero_grad()
                loss.mul(len(self.models)).backward()
                optimiser.step()
            yield step + 1

    @torch.no_grad()
    def accuracy(self, length: int, *, start: int = 0, batch: int = 256) -> Tensor:
        """How often the answer is right, at each place where one is asked: (seeds, places).

        Args:
            length: of the sequences that are read.
            start: the position of their first token.
            batch: how many of them.
        """
        require_size("length", length, least=2)
        require_size("batch", batch)
        generators = [torch.Generator().manual_seed(9000 + s) for s in range(len(self.models))]
        tokens, targets = self.task(generators, batch, length, start)
        with _one_thread():
            y = self.logits(tokens, At.of(torch.arange(start, start + length)[None]))
        right, asked = (y.argmax(-1) == targets).sum(1), (targets >= 0).sum(1)  # (seeds, length)
        somewhere = (asked > 0).all(0)
        return right[:, somewhere].double() / asked[:, somewhere]

    def trained(self, seed: int) -> nn.Module:
        """A copy of one of the models, with what it has learned."""
        model = copy.deepcopy(self.models[seed])
        model.load_state_dict({name: p[seed] for name, p in self.parameters.items()}, strict=False)
        return model


def interval(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over the first axis, and the ends of its 95 % confidence interval by Student's t.

    Args:
        values: (seeds, …), from 2 to 10 independent runs.

    Raises:
        ValueError: there are fewer or more.
    """
    seeds = values.shape[0]
    require(seeds in T_975, "values must hold from 2 to 10 runs, but hold {}", seeds)
    spread = T_975[seeds] * values.std(0) / seeds**0.5
    mean = values.mean(0)
    return mean, mean - spread, mean + spread


T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""The 0.975 quantile of Student's t for so many runs, with one degree of freedom less."""


def operations(function: Callable[[], object]) -> int:
    """How many operations torch is asked for, one after the other, in a call of the function.

    It does not depend on the machine, as time does, and is not smaller on a GPU.
    """

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        function()
    return counter.count


def peak_memory(function: Callable[[], object]) -> int:
    """The most bytes that tensors made in a call of the function hold at one time.

    Views hold nothing of their own. What operators use inside, and free before they return, is not
    seen. It does not depend on the machine.
    """

    class Watch(TorchDispatchMode):
        held: dict[int, int]
        peak = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            given = {_address(t) for t in tree_leaves((args, kwargs or {})) if _has_memory(t)}
            out = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(out):
                if _has_memory(tensor) and _address(tensor) not in given | set(self.held):
                    storage, address = tensor.untyped_storage(), _address(tensor)
                    self.held[address] = storage.nbytes()
                    weakref.finalize(storage, self.held.pop, address, None)
            self.peak = max(self.peak, sum(self.held.values()))
            return out

    watch = Watch()
    watch.held = {}
    with watch:
        function()
    return watch.peak


def _has_memory(value: object) -> bool:
    return isinstance(value, Tensor) and value.untyped_storage().nbytes() > 0


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def _one_thread() -> Iterator[None]:
    """On tensors this small threads only wait for each other, and on a busy machine for long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _kind(model: nn.Module) -> tuple[str, tuple[tuple[str, torch.Size], ...]]:
    """What models that run as one have in common: the modules' settings, the tensors' shapes."""
    shapes = ((name, tensor.shape) for name, tensor in model.state_dict().items())
    return repr(model), tuple(shapes)


def _draw(generators: Sequence[torch.Generator], batch: int, length: int) -> Tensor:
    shape = (batch, length)
    return torch.stack([torch.randint(VOCABULARY, shape, generator=g) for g in generators])

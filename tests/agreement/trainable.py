"""The table against published models that have one."""

from __future__ import annotations

import torch
from transformers import BertConfig, GPT2Config, GPT2Model
from transformers.models.bert.modeling_bert import BertEmbeddings

from posenc import Trainable

from .result import ORACLE, Agreement, difference, package

DIM, ROWS, N = 12, 17, 9


def bert() -> Agreement:
    """Word and position, the segments set to zero; BERT's norm behind both sides."""
    config = BertConfig(
        vocab_size=11, hidden_size=DIM, max_position_embeddings=ROWS, hidden_dropout_prob=0.0
    )
    theirs, ours = BertEmbeddings(config), Trainable(DIM, ROWS)
    torch.nn.init.zeros_(theirs.token_type_embeddings.weight)
    ours.table.data = theirs.position_embeddings.weight.data
    tokens = torch.arange(2 * N).reshape(2, N) % 11
    positions = torch.arange(N)[None] + 5
    x = theirs.word_embeddings(tokens)
    return Agreement(
        ours="Trainable",
        theirs="BertEmbeddings",
        package=package("transformers"),
        compared=f"the normed input of positions 5 to {N + 4}",
        difference=difference(
            theirs.LayerNorm(ours.embed(x, positions)),
            theirs(input_ids=tokens, position_ids=positions),
        ),
        tolerance=ORACLE,
    )


def gpt2() -> Agreement:
    """What GPT-2 hands to its first block."""
    config = GPT2Config(vocab_size=11, n_embd=DIM, n_positions=ROWS, n_layer=1, n_head=3)
    theirs, ours = GPT2Model(config).eval(), Trainable(DIM, ROWS)
    ours.table.data = theirs.wpe.weight.data
    tokens = torch.arange(2 * N).reshape(2, N) % 11
    states = theirs(input_ids=tokens, output_hidden_states=True).hidden_states
    return Agreement(
        ours="Trainable",
        theirs="GPT2Model",
        package=package("transformers"),
        compared=f"the input of the first block, positions 0 to {N - 1}",
        difference=difference(ours.embed(theirs.wte(tokens), torch.arange(N)[None]), states[0]),
        tolerance=ORACLE,
    )


COMPARISONS = (bert, gpt2)

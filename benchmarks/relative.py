"""What the relative encodings cost, beside attention without one and beside published code.

    python benchmarks/relative.py [--length 1024] [--heads 12] [--width 64] [--backward]

It prints ratios of medians over rounds, in which all are measured in turn, so that a busy machine
slows all of them alike; and the peak of the memory that tensors hold, in n × n logits of all heads.
Nothing here is a promise: other machines have other ratios. Published layers are timed where they
are installed (`transformers`), with the attention they come with, set to the same sizes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from posenc import T5, TUPE, ALiBi, At, Attention, DeBERTa, Nezha, Shaw, TransformerXL
from posenc.experiment import peak_memory

Call = Callable[[], Tensor]


def ours(n: int, heads: int, width: int, x: Tensor) -> dict[str, Call]:
    """A layer for each encoding, called on x."""
    dim, at = heads * width, At.sequence(n)
    encodings = {
        "none": None,
        "alibi": ALiBi(heads),
        "t5": T5(heads),
        "shaw, keys": Shaw(-16, 16, head_dim=width),
        "shaw, keys and values": Shaw(-16, 16, head_dim=width, value_dim=width),
        "nezha": Nezha(width),
        "transformer-xl": TransformerXL(dim, heads),
        "tupe": TUPE(dim, heads, n),
        "deberta": DeBERTa(dim, 512),
    }

    def call(layer: Attention) -> Call:
        return lambda: layer(x, at)

    return {name: call(Attention(dim, heads, encoding)) for name, encoding in encodings.items()}


def published(n: int, heads: int, width: int, x: Tensor) -> dict[str, Call]:
    """Layers of `transformers` that have the same encodings, called on x."""
    from transformers import (
        BloomConfig,
        DebertaV2Config,
        T5Config,
        Wav2Vec2BertConfig,
        XLNetConfig,
    )
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
    from transformers.models.t5.modeling_t5 import T5Attention
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
    from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

    dim = heads * width

    def ready(layer: nn.Module) -> nn.Module:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, 0, dim**-0.5)
        return layer.eval()

    bloom = ready(BloomAttention(BloomConfig(hidden_size=dim, n_head=heads), layer_idx=0))
    nothing = torch.zeros(1, 1, 1, n)
    everywhere = torch.ones(1, n, dtype=torch.int64)

    def alibi() -> Tensor:
        bias = build_alibi_tensor(everywhere, heads, torch.float32)
        return bloom(x, torch.zeros_like(x), bias, nothing)[0]

    config = T5Config(d_model=dim, num_heads=heads, d_kv=width, dropout_rate=0.0)
    config._attn_implementation = "eager"
    t5 = ready(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))

    config = Wav2Vec2BertConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=16,
        right_max_position_embeddings=16,
    )
    config._attn_implementation = "eager"
    shaw = ready(Wav2Vec2BertSelfAttention(config))

    config = XLNetConfig(d_model=dim, n_head=heads, d_inner=dim, n_layer=1, attn_type="bi")
    xlnet, model = ready(XLNetRelativeAttention(config)), XLNetModel(config).eval()
    h = x.transpose(0, 1)

    def xl() -> Tensor:
        r = model.relative_positional_encoding(n, n, bsz=1)
        return xlnet(h, None, None, None, r, None)[0]

    config = DebertaV2Config(
        hidden_size=dim,
        num_attention_heads=heads,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        share_att_key=True,
        max_relative_positions=512,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    deberta, R = ready(DisentangledSelfAttention(config)), torch.randn(1024, dim)
    visible = torch.ones(1, 1, n, n, dtype=torch.bool)
    return {
        "alibi": alibi,
        "t5": lambda: t5(x)[0],
        "shaw, keys": lambda: shaw(x)[0],
        "transformer-xl": xl,
        "deberta": lambda: deberta(x, visible, rel_embeddings=R)[0],
    }


def median_times(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The median time of each call, all measured in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seen[1:]) for name, seen in times.items()}  # the first warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=1024, help="number of tokens")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--backward", action="store_true", help="time forward and backward")
    given = parser.parse_args()
    n, heads, width = given.length, given.heads, given.width

    torch.manual_seed(0)
    x = torch.randn(1, n, heads * width)
    calls = ours(n, heads, width, x)
    calls |= {f"{name} (transformers)": f for name, f in published(n, heads, width, x).items()}
    if given.backward:
        timed = {name: (lambda f=f: f().sum().backward()) for name, f in calls.items()}
        times = median_times(timed, given.rounds)
    else:
        with torch.no_grad():
            times = median_times(calls, given.rounds)
    with torch.no_grad():
        peaks = {name: peak_memory(call) for name, call in calls.items()}
    unit = heads * n * n * x.element_size()

    print(f"n = {n}, {heads} heads of width {width}, {torch.get_num_threads()} threads")
    print("time: × a layer without encoding; memory: peak, in n × n logits of all heads\n")
    print(f"{'':32} time  memory")
    for name in calls:
        print(f"{name:32} {times[name] / times['none']:4.2f}  {peaks[name] / unit:6.2f}")


if __name__ == "__main__":
    main()

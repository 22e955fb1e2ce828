"""posenc: Transformer positional encodings that compute exactly the formula on the page.

The library of the book *Where Am I? Transformer positional encodings, derived and run*. Modules
have the names of the book's chapters.
"""

from .absolute.base import Absolute
from .absolute.recursive import Cell, Dynamics, Floater, FloaterBiases, Recurrent, Recursive
from .absolute.sinusoidal import Sinusoidal
from .absolute.trainable import Hierarchical, Trainable
from .attention import Attention
from .encoding import At, Combined, Encoding, Project, positions_from_mask
from .model import Block, Transformer
from .normalise import L2, NORMALISERS, Exp, ExpOverN, ReluSquaredOverN, Softmax, SwishL2
from .relative.classic import Nezha, Shaw
from .relative.deberta import DeBERTa, EnhancedMaskDecoder
from .relative.t5 import T5, TUPE, ALiBi, Bias
from .relative.transformer_xl import TransformerXL
from .unconventional.convolution import Convolution
from .unconventional.rotary import Rotary

__version__ = "0.1.0"

__all__ = [
    "L2",
    "NORMALISERS",
    "T5",
    "TUPE",
    "ALiBi",
    "Absolute",
    "At",
    "Attention",
    "Bias",
    "Block",
    "Cell",
    "Combined",
    "Convolution",
    "DeBERTa",
    "Dynamics",
    "Encoding",
    "EnhancedMaskDecoder",
    "Exp",
    "ExpOverN",
    "Floater",
    "FloaterBiases",
    "Hierarchical",
    "Nezha",
    "Project",
    "Recurrent",
    "Recursive",
    "ReluSquaredOverN",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "Softmax",
    "SwishL2",
    "Trainable",
    "Transformer",
    "TransformerXL",
    "positions_from_mask",
]

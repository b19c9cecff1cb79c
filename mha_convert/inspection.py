"""The first two stages: what is in a source. ``inspect`` needs no other, and starts without them."""

from typing import TYPE_CHECKING

from .files.locations import StrPath
from .graph import graph_of
from .layers import survey
from .layers.descriptions import read_attention
from .options import Options, ProofOptions, SourceOptions, asked
from .readers import read
from .records.layer import Findings
from .records.said import GraphInspection, Inspection
from .records.source import Checkpoint

if TYPE_CHECKING:
    from typing_extensions import Unpack


def inspect_file(source: StrPath, **options: "Unpack[SourceOptions]") -> Inspection:
    """What ``inspect`` shows: every layer that can be converted, and what resembles one and cannot be.

    Args:
        source: whatever ``read`` takes: a file, a folder or a URL.
        options: ``config``, ``trust`` and ``attention``, see ``Options``.

    Raises:
        ReadError, LayerError: the file is damaged, or a layer contradicts itself.
    """
    return Inspection(*found_in(source, asked(SourceOptions, options)))


def inspect_graph(source: StrPath, **options: "Unpack[ProofOptions]") -> GraphInspection:
    """What ``inspect --graph`` shows: which layer of a model is called with what, in the order in which Keras does so.

    Args:
        source: whatever ``read`` takes: a file, a folder or a URL.
        options: ``config`` and ``trust``, see ``Options``.

    Raises:
        ReadError, LayerError: as ``read`` and ``graph_of`` raise them.
    """
    wanted = asked(ProofOptions, options)
    checkpoint = read(source, config=wanted.config, trust=wanted.trust)
    return GraphInspection(checkpoint, graph_of(checkpoint))


def found_in(source: StrPath, wanted: Options) -> tuple[Checkpoint, Findings]:
    """The first two stages. Arrays are read only where a layer cannot be recognised without, see ``find_layers``."""
    rows = read_attention(wanted.attention)
    checkpoint = read(source, config=wanted.config, trust=wanted.trust)
    return checkpoint, survey(checkpoint, rows)

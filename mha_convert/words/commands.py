"""Command lines for pasting, whose words ``files/shell`` has quoted."""

from ..files.shell import option
from .table import CommandLine


def convert_line(source: str, target: str, layer: str, choice: str = "") -> CommandLine:
    """The line of ``explain`` that converts one layer.

    Args:
        source: the source and the options that it was explained with, quoted.
        target: a plain name of ours.
        layer: the layer's name, as it is.
        choice: more options, each after a blank.
    """
    return CommandLine(f"  $ mha-convert convert {source} {target} {option('--layer', layer)} --prefix ''{choice}")

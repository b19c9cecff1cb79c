"""Normalizations, of which most are modules of PyTorch."""

from ..layer_normalization import lay_out as layer_normalization

LAY_OUT = {"LayerNormalization": layer_normalization}

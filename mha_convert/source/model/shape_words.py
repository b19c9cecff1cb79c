"""Shapes in words, for docstrings and messages."""

from ...records.graph import TensorSpec


def shape_text(spec: TensorSpec) -> str:
    """``(batch, 500, 1)``; a free size is called ``length`` or ``size``."""
    sizes = spec.shape or ()
    names = ["batch" if place == 0 else "length" if place == 1 else "size" for place in range(len(sizes))]
    texts = [name if size is None else str(size) for name, size in zip(names, sizes, strict=True)]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

"""TimeDistributed: steps are rows of a larger batch for the layer inside, or make no difference to it."""

from ....graph.shapes import SHAPES
from ....graph.shapes.sizes import of_shape
from ....records.layer import PlainLayer
from ....records.model import Term
from ..use import Use, Written, atom, last

# Kinds that compute on the last axis, or on each number, whatever the others are.
OF_ANY_RANK = frozenset(
    """
    Dense Embedding Activation ReLU LeakyReLU ELU Identity Dropout AlphaDropout GaussianDropout GaussianNoise
    SpatialDropout1D SpatialDropout2D SpatialDropout3D ActivityRegularization Rescaling
    """.split()  # noqa: SIM905 - one line a word would be long
)


def time_distributed(layer: PlainLayer, use: Use, inputs: Term) -> Written:
    """The line of the layer inside, for all steps at once."""
    from . import LINES

    (part,) = layer.inside
    line = LINES[part.kind]
    if part.kind in OF_ANY_RANK:
        found = line(part, use, inputs)
        return found if isinstance(found, Written) else Written(found)
    text, (batch, _, *others) = last(inputs), inputs.spec.shape or ()
    spec = of_shape(inputs.spec, (batch, *others))
    found = line(part, use, Term(f"{atom(text)}.flatten(0, 1)", spec))
    written = found if isinstance(found, Written) else Written(found)
    result = Term(written.outputs[0] if written.outputs else written.text, SHAPES[part.kind](part, spec), written.order)
    steps = f"{atom(last(result))}.unflatten(0, {atom(text)}.shape[:2])"
    if written.outputs:
        return Written(statements=written.statements, outputs=(steps,), locals=written.locals)
    return Written(steps)


LINES = {"TimeDistributed": time_distributed}

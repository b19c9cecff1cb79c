"""What was shown: counts, comparisons, and the conversion that they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass

from .face import Face
from .layer import NotConverted
from .plan import Plan
from .source import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ledger(Face):
    """Where the numbers of one layer went; ``source`` must be ``moved + rescaled``.

    ``target`` is that and ``repeated`` (of grouped heads, beyond the first time), ``padding`` and ``identity``.
    """

    source: int
    moved: int
    rescaled: int
    repeated: int
    padding: int
    identity: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Face):
    """One measured difference between PyTorch and a reference.

    ``case`` names the masks, ``what`` is "output" or "scores", ``weights`` says which tensors the module held
    ("float64" conversion, or the "stored" ones). ``error`` is the largest absolute difference, ``relative`` the
    same divided by the reference's largest value, ``bound`` what ``relative`` must not exceed.
    """

    layer: str
    case: str
    what: str
    weights: str
    reference: str
    error: float
    relative: float
    bound: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within its bound; False for NaN."""
        return self.relative <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckedTensor(Face):
    """The bit-for-bit statement: a tensor in the target is the float64 conversion, once ``rounded`` where need be.

    ``vanished`` is how many numbers were too small for the dtype and became 0.
    """

    layer: str
    key: str
    dtype: str
    rounded: bool
    vanished: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Conversion(Face):
    """What a conversion or a verification did. ``reference`` is what the layers were compared with, or None."""

    source: Checkpoint
    target: str
    plan: Plan
    reference: str | None
    ledgers: Mapping[str, Ledger]
    stored: tuple[CheckedTensor, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    not_converted: tuple[NotConverted, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """True where there are layers, every one was compared, and every comparison passed."""
        names, compared = ({item.layer.name for item in self.plan.layers}, {c.layer for c in self.comparisons})
        return bool(names) and compared == names and all(c.passed for c in self.comparisons)

    @property
    def described(self) -> tuple[str, ...]:
        """Layers that are proven as a user's row describes them: nothing in the file says that the row is right."""
        return tuple(item.layer.name for item in self.plan.layers if item.layer.row is not None)

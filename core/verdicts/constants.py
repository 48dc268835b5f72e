"""Every number that a verdict rests on, with its reason. Overridable by a file; echoed in each result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from msprobe.core.documents import read_document
from msprobe.core.errors import ConfigError
from msprobe.core.suggestions import unknown

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of the verdict; all are factors without unit unless said otherwise."""

    #: How many roundings of the output's format one leaf module or operator may show. A single rounding errs by about
    #: half a unit in the root mean square; a sketch of eight projections overestimates by less than 2 in all but 1 of
    #: 10,000 cases.
    leaf_roundings: float = 8.0
    #: The same for code between recorded sites (attention without modules, rotary embedding, residual sums): several
    #: operators.
    own_code_roundings: float = 16.0
    #: How much more than in the mean an input's error may be amplified by a contraction (y = W x): the mean is
    #: |W| |x| / (sqrt(K) |y|) for errors of random direction, the worst case is sqrt(K) times that.
    contraction_gain: float = 16.0
    #: Amplification allowed to a leaf that is no contraction (normalisation, activation).
    leaf_gain: float = 8.0
    #: Amplification allowed to code between sites. Softmax amplifies by the size of its logits, 10 to 20 in trained
    #: models.
    own_code_gain: float = 16.0
    #: The error of a fault has a direction, and may be amplified this many times more than an error of rounding.
    fault_gain: float = 4.0
    #: Operands of this mean size are masks, not quantities; they are left out of cancellation.
    mask_size: float = 1e15
    #: An optimizer that divides by the gradient's size (Adam) turns a relative gradient error e into an update error of
    #: about sqrt(e): the elements whose gradient is smaller than its error move at random. Times this factor.
    update_gain: float = 32.0
    #: Where the gradient is all noise (of a bias that softmax cancels) the two updates have nothing in common: their
    #: difference is up to twice the size of either, estimated to a quarter by the sketch.
    largest_update: float = 4.0
    #: With a noise run: how many times the measured floor is normal. The floor is one sample of a spread quantity.
    noise_factor: float = 4.0
    #: With a golden run: the candidate may be this many times further from it than the reference is.
    golden_factor: float = 3.0
    #: Below this share of judged records (of the matched ones) the run is inconclusive; also ``--min-coverage``.
    min_coverage: float = 0.95
    #: Below this share of matched records (of all) the run is inconclusive.
    min_matched: float = 0.5
    #: Below this share of paired modules two runs are taken for two different models, and refused.
    min_paired_modules: float = 0.1
    #: A ratio of the two sides is called an exact factor if it explains them to this relative error.
    exact_factor: float = 1e-5

    def as_dict(self) -> dict[str, float]:
        """Gives names and values, for the result's echo."""
        return asdict(self)


def read_constants(path: str | Path) -> Constants:
    """Reads a file of ``name: value`` lines that override the defaults.

    Raises:
        ConfigError: A name is unknown or a value is no positive number; with file and line.
    """
    document = read_document(path)
    if not isinstance(document.content, dict):
        raise ConfigError(f"{document.where()}: a constants file holds lines of 'name: number'.")
    known = [field.name for field in fields(Constants)]
    values: dict[str, float] = {}
    for name, value in document.content.items():
        where = document.where(name)
        if name not in known:
            raise ConfigError(f"{where}: {unknown('constant', str(name), known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{where}: {name} must be a positive number, not {value!r}.")
        values[name] = float(value)
    return replace(Constants(), **values)

"""A reducer for NumPy arrays: what the recorder needs of a framework, in one page."""

from dataclasses import dataclass, field

import numpy as np

from msprobe.core.records import SKETCH_SIZE
from msprobe.core.sites import Form

FORMATS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "int64": "int64", "bool": "bool", "uint8": "uint8"}


@dataclass
class Copy:
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass
class Rows:
    columns: dict


@dataclass
class NumpyReducer:
    slots: list = field(default_factory=list)
    num_measured: int = 0
    num_collected: int = 0

    def describe(self, tensor):
        if not isinstance(tensor, np.ndarray):
            return Form("unknown", (), "meta" if tensor is None else type(tensor).__name__)
        return Form(FORMATS[tensor.dtype.name], tensor.shape)

    def measure(self, tensor, what):
        if tensor.size and tensor.flat[0] == 666:
            raise ValueError("the number of the beast")
        self.slots.append(tensor.astype(np.float64))
        self.num_measured += 1
        return len(self.slots) - 1

    def collect(self):
        self.num_collected += 1
        slots, self.slots = self.slots, []
        rows = [numbers(values.ravel()) for values in slots]
        columns = {name: np.array([row[name] for row in rows]) for name in numbers(np.empty(0))}
        columns["sketch"] = columns["sketch"].reshape(-1, SKETCH_SIZE)
        return columns

    def snapshot(self, tensor):
        data = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).copy()
        return Copy(FORMATS[tensor.dtype.name], tensor.shape, data)

    def rows(self, tensor):
        return Rows({"norm": np.linalg.norm(tensor.astype(np.float64), axis=-1)})


def numbers(values):
    finite = values[np.isfinite(values)]
    some = len(finite) > 0
    return {
        "min": finite.min() if some else np.nan,
        "max": finite.max() if some else np.nan,
        "mean": finite.mean() if some else np.nan,
        "mean_abs": np.abs(finite).mean() if some else np.nan,
        "m2": ((finite - finite.mean()) ** 2).sum() if some else np.nan,
        "norm": np.linalg.norm(finite) if some else np.nan,
        "nan": np.isnan(values).sum(),
        "pos_inf": np.isposinf(values).sum(),
        "neg_inf": np.isneginf(values).sum(),
        "zero": (values == 0).sum(),
        "sketch": [finite.sum() + i for i in range(SKETCH_SIZE)],
        "checksum": np.uint64(int.from_bytes(values.tobytes()[:8], "little")),
        "content_sum": np.uint64(values.view(np.uint64).sum()),
    }

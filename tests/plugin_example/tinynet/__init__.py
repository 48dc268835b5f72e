"""A framework of one page: layers in NumPy, with their gradients by hand, that let others watch their calls.

It stands for whatever framework a third party has; ``msprobe_example`` teaches msprobe to record it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Called as watcher(layer, moment, values); the moments are "input", "output", "gradient in" and "gradient out".
Watcher = Callable[["Layer", str, Any], None]


class Layer:
    """A node of the network: ``forward`` and ``backward`` are its own, calling it lets the watchers see."""

    def __init__(self, **children: Layer) -> None:
        self.children = children
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        self.watchers: list[Watcher] = []

    def __call__(self, x: Array) -> Array:
        for watcher in self.watchers:
            watcher(self, "input", x)
        y = self.forward(x)
        for watcher in self.watchers:
            watcher(self, "output", y)
        return y

    def pull_back(self, gradient: Array) -> Array:
        """Carries the gradient of the output back to the input."""
        for watcher in self.watchers:
            watcher(self, "gradient in", gradient)
        result = self.backward(gradient)
        for watcher in self.watchers:
            watcher(self, "gradient out", result)
        return result

    def named_layers(self, prefix: str = "") -> Iterator[tuple[str, Layer]]:
        """Gives each layer below and this one, by path."""
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_layers(f"{prefix}.{name}" if prefix else name)

    def forward(self, x: Array) -> Array:
        """Chains the children; layers without any have a forward of their own."""
        for child in self.children.values():
            x = child(x)
        return x

    def backward(self, gradient: Array) -> Array:
        """Chains the children backwards."""
        for child in reversed(self.children.values()):
            gradient = child.pull_back(gradient)
        return gradient


class Linear(Layer):
    """y = x W^T."""

    def __init__(self, weight: Array) -> None:
        super().__init__()
        self.parameters["weight"] = weight

    def forward(self, x: Array) -> Array:
        self._x = x
        return x @ self.parameters["weight"].T

    def backward(self, gradient: Array) -> Array:
        self.gradients["weight"] = gradient.T @ self._x
        return gradient @ self.parameters["weight"]


class Tanh(Layer):
    """y = tanh x."""

    def forward(self, x: Array) -> Array:
        self._y = np.tanh(x)
        return self._y

    def backward(self, gradient: Array) -> Array:
        return gradient * (1 - self._y**2)

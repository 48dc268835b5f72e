"""Record layers of tinynet: watchers feed the recorder, which does the rest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.core.graph import EdgeSource
from msprobe.core.recorder import Recorder
from msprobe.core.run.batch import RankInfo, RunHeader
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, NodeKind, Role
from msprobe_example.reducer import ArrayReducer
from tinynet import Array, Layer

if TYPE_CHECKING:
    from msprobe.core.options import RecordOptions

#: Where a watcher's moments belong, and whether the option for it is on.
_MOMENTS = {
    "input": (Direction.FORWARD, Role.INPUT, "inputs"),
    "output": (Direction.FORWARD, Role.OUTPUT, "outputs"),
    "gradient in": (Direction.BACKWARD, Role.INPUT, "gradients"),
    "gradient out": (Direction.BACKWARD, Role.OUTPUT, "gradients"),
}


class TinyNetAdapter:
    """Watches models of tinynet."""

    name = "tinynet"

    def __init__(self) -> None:
        self._probes: list[TinyNetProbe] = []

    def owns(self, model: object) -> bool:
        """Tells whether the model is a layer."""
        return isinstance(model, Layer)

    def record(
        self, model: Layer, path: Path, options: RecordOptions, *, optimizer: object = None, **context: object
    ) -> TinyNetProbe:
        """Starts recording; tinynet has no optimizers, so steps end by ``probe.step()``."""
        header = RunHeader(framework="tinynet", config=asdict(options), context=context)
        writer = RunWriter(path, rank=RankInfo(), header=header, what=options.what, queue_bytes=options.queue_bytes)
        probe = TinyNetProbe(self, model, Recorder(writer, ArrayReducer(), options), options)
        self._probes.append(probe)
        return probe

    def save(self, tensor: Array, name: str) -> None:
        """Records an array under a name in every recording under way."""
        for probe in self._probes:
            probe.save(tensor, name)

    def seed_all(self, seed: int, *, deterministic: bool = True) -> None:
        """Does nothing: tinynet draws no random numbers, and NumPy is seeded by msprobe."""

    def forget(self, probe: TinyNetProbe) -> None:
        """Drops a probe that was closed."""
        self._probes.remove(probe)


class TinyNetProbe:
    """One recording: watches the layers while the current step is wanted, and only then."""

    def __init__(self, adapter: TinyNetAdapter, model: Layer, recorder: Recorder, options: RecordOptions) -> None:
        self._adapter, self._model, self._recorder, self._options = adapter, model, recorder, options
        self._paths = {id(layer): path for path, layer in model.named_layers()}
        self._calls: dict[tuple[str, str], int] = {}
        #: The arrays that were seen in this step, held so that no other array can take their identity.
        self._seen: dict[int, tuple[Array, int, int]] = {}
        self._watch()

    def step(self) -> None:
        """Ends a step."""
        self._unwatch()
        self._recorder.end_step()
        self._calls, self._seen = {}, {}
        self._watch()

    def close(self) -> None:
        """Stops watching and finishes the run."""
        self._unwatch()
        self._recorder.close()
        self._adapter.forget(self)

    def __enter__(self) -> TinyNetProbe:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def save(self, tensor: Array, name: str) -> None:
        """Records an array under a name."""
        if self._recorder.recording:
            node = self._recorder.node(name, NodeKind.SAVE, "", None)
            site = self._recorder.site(node, Direction.FORWARD, Role.SAVED, "", self._count(name, "saved"))
            self._recorder.observe(site, tensor)

    def _watch(self) -> None:
        if self._recorder.recording:
            for _, layer in self._model.named_layers():
                layer.watchers.append(self._observe)

    def _unwatch(self) -> None:
        for _, layer in self._model.named_layers():
            layer.watchers = [watcher for watcher in layer.watchers if watcher != self._observe]

    def _observe(self, layer: Layer, moment: str, values: Array) -> None:
        direction, role, option = _MOMENTS[moment]
        node = self._node(layer)
        what = self._recorder.wants(node)
        if not what:
            return
        call = self._count(self._paths[id(layer)], moment)
        if moment == "input" and call == 0 and self._options.parameters:
            for name, parameter in layer.parameters.items():
                self._record(self._recorder.site(node, Direction.FORWARD, Role.PARAMETER, name, 0), parameter, what)
        if getattr(self._options, option):
            self._record(self._recorder.site(node, direction, role, "0", call), values, what)
        if moment == "gradient out" and self._options.gradients:
            for name, gradient in layer.gradients.items():
                site = self._recorder.site(node, Direction.BACKWARD, Role.GRADIENT, name, call)
                self._record(site, gradient, what)

    def _record(self, site: int, values: Array, what: frozenset[str]) -> None:
        """Records an array; one that was seen before is not measured again, and came from where it was seen."""
        earlier = self._seen.get(id(values))
        if earlier is None:
            seq = self._recorder.observe(site, values, what=what)
        else:
            _, source, seq = earlier
            self._recorder.observe(site, values, what=what, share=seq)
            self._recorder.edge(source, site, EdgeSource.IDENTITY)
        self._seen[id(values)] = (values, site, seq)

    def _node(self, layer: Layer) -> int:
        path = self._paths[id(layer)]
        parent = None if path == "" else path.rpartition(".")[0]
        return self._recorder.node(path, NodeKind.MODULE, type(layer).__name__, parent)

    def _count(self, path: str, moment: str) -> int:
        count = self._calls.get((path, moment), 0)
        self._calls[path, moment] = count + 1
        return count

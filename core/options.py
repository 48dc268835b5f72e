"""What a recording is asked to do, and how the short forms that people write are read.

No pydantic here: a training process makes its options without paying for that import. ``core.config`` reads files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from msprobe.core.errors import ConfigError
from msprobe.core.presets import PRESETS
from msprobe.core.records import WHAT
from msprobe.core.suggestions import unknown

LEVELS: tuple[str, ...] = ("module", "op", "mix")
#: Other names of the levels, as users of the older tool know them.
LEVEL_ALIASES: dict[str, str] = {"L0": "module", "L1": "op"}

#: Ways in which context parallelism cuts a sequence into the parts of its ranks.
SEQUENCE_CUTS: tuple[str, ...] = ("contiguous", "zigzag")
BATCH_ORDERS: tuple[str, ...] = ("blocks", "interleaved")

_SIZE_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
_RANGE = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d+)?)?\s*")

Ranges = tuple[tuple[int, "int | None"], ...]


class OptionValues(TypedDict, total=False):
    """The keyword arguments that ``msprobe.record`` takes, in the forms that people write."""

    preset: str
    level: str
    what: str | Iterable[str]
    what_for: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str | Iterable[str]]]
    targets: str | Iterable[str]
    exclude: str | Iterable[str]
    steps: int | str | Iterable[int | str | tuple[int, int | None]]
    every: int
    window: int
    ranks: int | str | Iterable[int | str]
    inputs: bool
    outputs: bool
    parameters: bool
    buffers: bool
    gradients: bool
    optimizer_state: bool
    updated_parameters: bool
    updates: bool
    scalars: bool
    collectives: bool
    routing: bool
    attention: bool
    alerts: str | Iterable[Any]
    on_alert: Any
    dump_on_alert: int
    stop_on_alert: bool
    control: bool | str
    stacks: bool
    trace: bool
    vectors: bool
    allow_decompile: bool
    start_step: int
    tensor_budget: int | str
    queue_bytes: int | str
    mesh: str | Mapping[str, int] | Iterable[tuple[str, int]]
    context_parallel: str
    layouts: str | Iterable[str]
    batch_order: str


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What a recording keeps, of which tensors, at which steps. Make it with ``RecordOptions.create``."""

    #: The preset that options which were not given came from (``core.presets``).
    preset: str = ""
    #: "module" records at module calls, "op" at operators, "mix" at both.
    level: str = "module"
    #: What is kept of each tensor: a subset of ``core.records.WHAT``.
    what: frozenset[str] = frozenset({"statistics", "sketch"})
    #: (pattern over node path, class or op name; what): the first pattern that fits replaces ``what``.
    what_for: tuple[tuple[str, frozenset[str]], ...] = ()
    #: Patterns (fnmatch) over node path, class name or op name; empty: all.
    targets: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: Half-open ranges of steps; an end of None is open; empty: all.
    steps: Ranges = ()
    #: Record each n-th step, counted from step 0.
    every: int = 1
    #: Of each ``every`` steps, record so many in a row.
    window: int = 1
    #: Global ranks that record; empty: all.
    ranks: frozenset[int] = frozenset()
    inputs: bool = True
    outputs: bool = True
    parameters: bool = True
    buffers: bool = True
    gradients: bool = True
    #: Record what the optimizer keeps of each parameter, after its step.
    optimizer_state: bool = False
    #: Record parameters after the optimizer's step.
    updated_parameters: bool = False
    #: Record by how much a step moves each parameter, relative to it too, and whether gradient and momentum agree.
    updates: bool = False
    #: Note learning rate, clipped and recomputed gradient norm, and a loss that the model returns, each step.
    scalars: bool = False
    #: Record what collectives over ranks are given, and what they give when they are complete.
    collectives: bool = False
    #: Record load, entropy and dropped tokens of routers of experts.
    routing: bool = False
    #: Record entropy and largest logit of attention where weights are computed.
    attention: bool = False
    #: Rules that watch while recording: names, ``module:attribute`` or objects (``core.alerts``); empty: none.
    alerts: tuple[Any, ...] = ()
    #: Functions that are called with each alert: ``module:function`` or the function.
    on_alert: tuple[Any, ...] = ()
    #: How many times an alert may have the tensors of the guilty node saved on the next step.
    dump_on_alert: int = 0
    #: Raise ``AlertError`` into the training at the end of the step that an alert is about.
    stop_on_alert: bool = False
    #: Take changes of the options while recording: "" no, "on" by ``msprobe ctl``, else also from the file named here.
    control: str = ""
    #: Keep the Python call stack of each site.
    stacks: bool = False
    #: Follow data flow through operators in the first recorded step.
    trace: bool = True
    #: Keep content sums of the rows and columns of parameters in the first recorded step, which recognise fused and
    #: transposed weights (``core.content_vectors``).
    vectors: bool = True
    #: Allow op level to take compiled regions apart; the run is then marked altered.
    allow_decompile: bool = False
    #: The number of the first step.
    start_step: int = 0
    #: Bytes of tensors on disk; 0: no limit.
    tensor_budget: int = 0
    #: Bytes that may wait for the writer before detail is dropped.
    queue_bytes: int = 256 * 2**20
    #: Axes of the parallel mesh with their sizes, outermost first; empty: as the framework tells.
    mesh: tuple[tuple[str, int], ...] = ()
    #: How context parallelism cuts the sequence: "contiguous", "zigzag" (parts i and 2n-1-i of 2n), or "" (not told).
    context_parallel: str = ""
    #: ``module:attribute`` of layout rules (``core.protocols.LayoutRules``), besides those of plugins.
    layouts: tuple[str, ...] = ()
    #: How data-parallel ranks share the batch: "blocks" (rank after rank) or "interleaved" (samples dealt in turn).
    batch_order: str = "blocks"

    @classmethod
    def create(cls, **values: Any) -> RecordOptions:
        """Reads options in the forms that people write; see ``OptionValues``.

        Raises:
            ConfigError: An option is unknown, or its value has no meaning.

        >>> RecordOptions.create(level="L1", what="statistics, tensors", steps="0,10-12").steps
        ((0, 1), (10, 13))
        """
        return cls().updated(**values)

    def updated(self, **values: Any) -> RecordOptions:
        """Gives these options with some replaced, each read as ``create`` reads it; a preset yields to the others."""
        found = {name: parse_option(name, value) for name, value in values.items()}
        return replace(self, **{**preset_values(found.get("preset", "")), **found})


OPTION_NAMES: tuple[str, ...] = tuple(f.name for f in fields(RecordOptions))


def preset_values(name: str) -> dict[str, Any]:
    """Gives what a preset sets, as ``RecordOptions`` holds it; nothing for the empty name."""
    return {option: parse_option(option, value) for option, value in PRESETS[name].items()} if name else {}


def parse_option(name: str, value: object) -> Any:
    """Gives the value that ``RecordOptions`` holds for what a person wrote.

    Raises:
        ConfigError: The option is unknown, or its value has no meaning.
    """
    parser = _PARSERS.get(name)
    if parser is None:
        raise ConfigError(unknown("option", name, OPTION_NAMES))
    try:
        return parser(value)
    except ConfigError as error:
        raise ConfigError(f"option {name!r}: {error}") from None


def parse_ranges(value: object) -> Ranges:
    """Reads steps: ``"0,5,10-20,100-"``, a number, or a list of such; ``10-20`` includes step 20.

    Pairs of numbers in a list are half-open ranges, as in Python.
    """
    if isinstance(value, str):
        return tuple(_range(part) for part in value.split(",") if part.strip())
    if isinstance(value, int) and not isinstance(value, bool):
        return (_range(str(value)),)
    if not isinstance(value, Iterable):
        raise ConfigError(f"{value!r} is neither a number nor a range such as '10-20'.")
    found: list[tuple[int, int | None]] = []
    for part in value:
        found.extend([_pair(part)] if isinstance(part, tuple) else parse_ranges(part))
    return tuple(found)


def parse_size(value: object) -> int:
    """Reads a number of bytes, plain or with a unit.

    >>> parse_size("2 GiB"), parse_size("1.5k"), parse_size(10)
    (2147483648, 1500, 10)
    """
    text = str(value)
    found = None if isinstance(value, bool) else _SIZE.fullmatch(text)
    if not found:
        raise ConfigError(f"{text!r} is no size. Write bytes, or a number with a unit such as '500 MB' or '2 GiB'.")
    unit = _SIZE_UNITS[found[2].lower()] if found[2] else 1
    return int(float(found[1]) * unit)


def _range(text: str) -> tuple[int, int | None]:
    found = _RANGE.fullmatch(text)
    if not found:
        raise ConfigError(f"{text!r} is no step or range. Write '5', '10-20' (20 included) or '100-'.")
    first = int(found[1])
    if not found[2]:
        return (first, first + 1)
    if not found[3]:
        return (first, None)
    last = int(found[3])
    if last < first:
        raise ConfigError(f"range {text.strip()!r} ends before it starts.")
    return (first, last + 1)


def _pair(pair: tuple[Any, ...]) -> tuple[int, int | None]:
    if len(pair) != 2 or not isinstance(pair[0], int) or not isinstance(pair[1], int | None):
        raise ConfigError(f"{pair!r} is no pair (first, end); the end is excluded, None leaves it open.")
    if pair[1] is not None and pair[1] <= pair[0]:
        raise ConfigError(f"range {pair!r} is empty; the end is excluded.")
    return (pair[0], pair[1])


def _preset(value: object) -> str:
    name = str(value) if value else ""
    if name and name not in PRESETS:
        raise ConfigError(unknown("preset", name, PRESETS))
    return name


def _level(value: object) -> str:
    name = str(value)
    level = LEVEL_ALIASES.get(name, name)
    if level not in LEVELS:
        raise ConfigError(unknown("level", name, (*LEVELS, *LEVEL_ALIASES)))
    return level


def _what(value: object) -> frozenset[str]:
    words = re.split(r"[,+\s]+", value.strip()) if isinstance(value, str) else _words(value)
    for word in words:
        if word not in WHAT:
            raise ConfigError(unknown("what", str(word), WHAT))
    if not words:
        raise ConfigError(f"nothing named. Known: {', '.join(WHAT)}.")
    return frozenset(words)


def _what_for(value: object) -> tuple[tuple[str, frozenset[str]], ...]:
    if isinstance(value, Mapping):
        value = value.items()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{value!r} is no table of patterns, such as {{'*.mlp': 'tensors'}}.")
    return tuple((str(pattern), _what(what)) for pattern, what in value)


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if not isinstance(value, Iterable):
        raise ConfigError(f"{value!r} is no list of names.")
    words = tuple(value)
    for word in words:
        if not isinstance(word, str):
            raise ConfigError(f"{word!r} is no name. Put it in quotes if it is one.")
    return words


def parse_ranks(value: object) -> frozenset[int]:
    """Reads ranks as ``parse_ranges`` reads steps; a range without an end is refused."""
    ranks: set[int] = set()
    for first, end in parse_ranges(value):
        if end is None:
            raise ConfigError(f"'{first}-' has no end; ranks need one.")
        ranks.update(range(first, end))
    return frozenset(ranks)


def parse_mesh(value: object) -> tuple[tuple[str, int], ...]:
    """Reads a mesh: ``"pp=2,tp=4"``, a table of axis and size, or pairs of them; the outermost axis first.

    >>> parse_mesh("pp=2, tp=4")
    (('pp', 2), ('tp', 4))
    """
    if isinstance(value, str):
        value = [part.partition("=")[::2] for part in value.split(",") if part.strip()]
    pairs = value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Iterable):
        raise ConfigError(f"{value!r} is no mesh. Write axes and sizes, such as 'pp=2,tp=4', the outermost first.")
    return tuple(_axis(pair) for pair in pairs)


def _axis(pair: Any) -> tuple[str, int]:
    name, size = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (str(pair), "")
    text = str(size).strip()
    if not str(name).strip() or not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name!r} with size {text!r} is no axis of a mesh. Write it like 'tp=4'.")
    return str(name).strip(), int(text)


def _sequence_cut(value: object) -> str:
    if value not in ("", *SEQUENCE_CUTS):
        raise ConfigError(unknown("way to cut the sequence", str(value), SEQUENCE_CUTS))
    return str(value)


def _batch_order(value: object) -> str:
    if value not in BATCH_ORDERS:
        raise ConfigError(unknown("order of the batch", str(value), BATCH_ORDERS))
    return str(value)


def _callables(value: object) -> tuple[Any, ...]:
    """Reads names, or objects that stand for themselves."""
    if isinstance(value, str):
        return _words(value)
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if any(thing is None or isinstance(thing, bool | int | float) for thing in found):
        raise ConfigError(f"{value!r} is neither a name, such as 'module:attribute', nor an object.")
    return found


def _control(value: object) -> str:
    return ("on" if value else "") if isinstance(value, bool) else str(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} is neither true nor false.")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{value!r} is no whole number from 0 up.")
    return value


def _every(value: object) -> int:
    count = _count(value)
    if count == 0:
        raise ConfigError("0 would record no step; the smallest is 1.")
    return count


_PARSERS: dict[str, Callable[[object], object]] = {
    "preset": _preset,
    "level": _level,
    "what": _what,
    "what_for": _what_for,
    "targets": _words,
    "exclude": _words,
    "steps": parse_ranges,
    "every": _every,
    "window": _every,
    "ranks": parse_ranks,
    **dict.fromkeys(("inputs", "outputs", "parameters", "buffers", "gradients"), _flag),
    **dict.fromkeys(("optimizer_state", "updated_parameters", "updates", "scalars"), _flag),
    **dict.fromkeys(("collectives", "routing", "attention", "stop_on_alert"), _flag),
    **dict.fromkeys(("alerts", "on_alert"), _callables),
    "dump_on_alert": _count,
    "control": _control,
    **dict.fromkeys(("stacks", "trace", "vectors", "allow_decompile"), _flag),
    "start_step": _count,
    "tensor_budget": parse_size,
    "queue_bytes": parse_size,
    "mesh": parse_mesh,
    "context_parallel": _sequence_cut,
    "layouts": _words,
    "batch_order": _batch_order,
}

"""Every error that msprobe raises on purpose, as one tree.

MsprobeError                 a mistake of the user or of a file: one clear message, exit code 2
├── ConfigError              an option or a config file is wrong
├── RunError                 a run directory cannot be read or written
│   └── RunVersionError      the run was written by a newer msprobe
├── MappingError             a mapping file is wrong
├── LayoutError              a description of how a tensor is cut over ranks contradicts itself
├── ComparisonError          two runs cannot be compared at all
├── TrendError               a question about trends that a run cannot answer
├── PluginError              a plugin is unknown, broken or lacks a requirement
├── RecordingError           recording cannot be started as asked
└── AlertError               an alert ends the training, because it was asked to
"""

from __future__ import annotations


class MsprobeError(Exception):
    """A mistake that the user can mend; the message says what, where and how."""


class ConfigError(MsprobeError):
    """An option or a config file is wrong."""


class RunError(MsprobeError):
    """A run directory cannot be read or written."""


class RunVersionError(RunError):
    """The run was written in a schema newer than this msprobe reads."""


class MappingError(MsprobeError):
    """A mapping file is wrong."""


class LayoutError(MsprobeError):
    """A layout contradicts itself or its tensor."""


class ComparisonError(MsprobeError):
    """Two runs cannot be compared at all."""


class TrendError(MsprobeError):
    """A question about trends that a run cannot answer."""


class PluginError(MsprobeError):
    """A plugin is unknown, broken or lacks a requirement."""


class RecordingError(MsprobeError):
    """Recording cannot be started as asked."""


class AlertError(MsprobeError):
    """An alert ends the training, as ``stop_on_alert`` asks."""

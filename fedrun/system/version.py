"""The version of fedrun."""

__version__ = "0.2.0"

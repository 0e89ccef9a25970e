"""The version of fedrun."""

VERSION = "0.2.0"

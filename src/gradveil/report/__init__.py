"""A run's folder as one page to read."""

from gradveil.report.build import write_report
from gradveil.results import Run, read_run

__all__ = ["Run", "read_run", "write_report"]

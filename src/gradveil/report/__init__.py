"""A run's folder as one page to read."""

from gradveil.audit.results import Run, read_run
from gradveil.report.build import write_report

__all__ = ["Run", "read_run", "write_report"]

"""Records to one of *leaks*, *no leak found under ...*, *inconclusive*, *not evaluated*."""

from gradveil.audit.verdict.judge import Finding, Verdict, judge
from gradveil.audit.verdict.write import as_json, write_verdict

__all__ = ["Finding", "Verdict", "as_json", "judge", "write_verdict"]

"""Records to one of *leaks*, *no leak found under ...*, *bounded*, *inconclusive*, *not evaluated*."""

from gradveil.audit.verdict.judge import Finding, Verdict, judge
from gradveil.audit.verdict.write import to_json, write_verdict

__all__ = ["Finding", "Verdict", "judge", "to_json", "write_verdict"]

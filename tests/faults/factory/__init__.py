"""The fault factory: faults that somebody could make, put into runs that leak. None may read as "no leak found".

`make faults` runs all of it and writes the table of docs/verdict.md; `tests/faults/test_fault_factory.py` runs a few
hundred.
"""

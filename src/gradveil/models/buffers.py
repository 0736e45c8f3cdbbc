"""Which entries of a state dict are torch's own running statistics, told by their names."""

RUNNING = ("running_mean", "running_var")
STATISTICS = (*RUNNING, "num_batches_tracked")


def is_statistic(name: str) -> bool:
    """
    >>> is_statistic("layer1.bn.running_mean"), is_statistic("layer1.bn.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in STATISTICS

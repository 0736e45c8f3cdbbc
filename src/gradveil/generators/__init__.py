"""Networks that draw pictures: what an attacker trains on public data and searches in."""

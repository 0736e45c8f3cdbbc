"""Federated training in this process: many clients, one model, any defense, and checkpoints to audit."""

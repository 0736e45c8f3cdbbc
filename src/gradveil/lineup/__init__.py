"""The line-up: how many pictures the best possible guesser names among candidates, by the update alone."""

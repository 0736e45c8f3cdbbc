"""From settings to a page, for everything that takes long: folder, journal, resume, workers, progress, seal."""

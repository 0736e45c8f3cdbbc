"""A captured round in rows: where it comes from, what struck, and whether the pictures given reproduce it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradveil.audit.results import Run

SHOWN = 20  # clients


def captured_rows(run: Run) -> Iterator[tuple[str, str]]:
    about = run.captured
    if not about:
        return
    yield "Round", str(about.get("round", "not stated"))
    yield "Written by", str(about.get("producer") or "not stated")
    yield "Content, SHA-256", str(about.get("sha256", "not stated"))
    yield "Model as sent, SHA-256", str(about.get("sent_model_sha256", "not stated"))
    yield "Defense that the clients stated", str(about.get("told_defense") or "not stated")
    notes = about.get("notes")
    noted = notes if isinstance(notes, list) else []
    for note in noted[:SHOWN]:
        yield "To note", str(note)
    if len(noted) > SHOWN:
        yield "To note", f"{len(noted) - SHOWN} more are in provenance.json"
    replays = about.get("replay")
    if not isinstance(replays, Mapping) or not replays:
        yield "Replay", "not possible: the pictures of the clients are not at hand"
        return
    for client, result in list(replays.items())[:SHOWN]:
        yield f"Replay, {client}", str(result)
    if len(replays) > SHOWN:
        yield "Replay", f"{len(replays) - SHOWN} more clients are in provenance.json"

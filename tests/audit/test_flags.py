"""Every flag has its text, and the page in docs is made of it."""

from pathlib import Path

import pytest

from gradveil.audit.flags import FLAGS, as_markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flags.md"


@pytest.mark.parametrize("name", FLAGS)
def test_has_a_section_in_the_docs(name):
    assert f"\n## {name}\n" in PAGE.read_text()


def test_the_docs_are_up_to_date():
    assert PAGE.read_text() == as_markdown(), "run: python -m gradveil.audit.flags > docs/flags.md"


@pytest.mark.parametrize("name", FLAGS)
def test_texts_are_whole_sentences(name):
    flag = FLAGS[name]
    for text in (flag.raised_if, flag.explanation, flag.do_this):
        assert text.endswith(".")
        assert "safe" not in text.lower()

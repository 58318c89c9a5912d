"""What one input may cost: nobody keeps a model from all others."""

import time

import pytest

from heedful.data.tokenizer import MASK
from heedful.decode import SearchOptions
from heedful.serve.batching import Gone
from heedful.serve.limits import Limits
from heedful.serve.translate_work import Source, TranslateWork
from heedful.serve.word_work import AnswerWork, Question, TagWork, Words, WriteWork, Writing

LONG = "anna lives in oslo . " * 380_000


@pytest.fixture(scope="module")
def small(serving, folders):
    with serving(
        {name: folders[name] for name in ("filler", "tagger", "answerer")}, limits=Limits(max_read=500)
    ) as one:
        yield one


def writing(text="the river", **options):
    return Writing(text, {"tokens": 5, "order": "mask-predict", "steps": None} | options)


def test_writing_is_weighed_by_all_that_is_read():
    assert writing().passes == 5 + 5
    assert writing(steps=7).passes == 7 + 5
    assert writing(order="gibbs").passes == 10 * 5 + 5
    assert writing(order="gibbs", steps=3).passes == 3 * 5 + 5
    filled = writing(f"the {MASK} {MASK}", order="gibbs", steps=7)
    assert filled.passes == 7 * 2 + 2
    assert filled.weight == (len(filled.text) + 4 * 2) * 16


def test_a_translation_is_weighed_by_its_hypotheses():
    assert Source("two five", width=7).weight == 8 * 7


def test_writing_has_a_bound(small):
    asked = {"inputs": "the river", "tokens": 7, "order": "gibbs", "steps": 4}  # 4 * 7 + 7 times 11 tokens
    assert small.ask("/generate", **asked)["text"].startswith("the river")
    said = small.refuses("/generate", 413, asked | {"steps": 6})
    assert "539 tokens" in said
    assert "500 may be (max-read)" in said
    assert "fewer steps" in said
    assert small.ask("/generate", **asked | {"order": "mask-predict", "steps": 30})


@pytest.mark.parametrize("text", ["anna lives in oslo . " * 90, "a " * 900])
def test_tagging_and_answering_have_a_bound(small, text):
    assert small.ask("/tag", inputs=text[:300])["tags"]
    assert "max-read" in small.refuses("/tag", 413, {"inputs": text})
    assert "max-read" in small.refuses("/tag", 413, {"inputs": [text.split()]})
    assert "max-read" in small.refuses("/answer", 413, {"inputs": {"question": "who ?", "context": text}})
    for name in ("tagger", "answerer"):
        inputs = text if name == "tagger" else {"question": "who ?", "context": text}
        assert "max-read" in small.refuses(f"/models/{name}", 413, {"inputs": inputs})


def test_what_is_far_too_long_is_not_even_taken_apart(served):
    begun = time.perf_counter()
    for path, inputs in (("/tag", LONG), ("/answer", {"question": "who ?", "context": LONG}), ("/generate", LONG)):
        said = served.refuses(path, 413, {"inputs": inputs})
        assert "7,98" in said
        assert "262,144 can be read (max-read)" in said
    assert time.perf_counter() - begun < 5


def test_long_work_stops_when_nobody_waits(served):
    text = "anna lives in oslo . " * 1600  # several steps' worth of windows
    tagger, answerer, filler = (served.predictor(name) for name in ("tagger", "answerer", "filler"))
    works = [
        (TagWork(tagger, tagger.reader("tag"), 65536), Words(text)),
        (AnswerWork(answerer.reader("answer"), 65536), Question("who ?", text)),
        (WriteWork(filler, 65536), writing(seed=3)),
        (TranslateWork(served.predictor("translator"), SearchOptions(), False), Source("two seven four one nine")),
    ]
    for work, example in works:
        prepared = work.prepare([example])
        asked = []

        def wanted(asked=asked) -> bool:
            asked.append(1)
            return len(asked) < 3

        with pytest.raises(Gone):
            work.answer(prepared, wanted)
        assert len(asked) == 3
        assert work.answer(prepared, lambda: True)


def test_similarity_where_the_queue_holds_no_more_than_a_request(serving, encoder):
    with serving({"it": encoder}, limits=Limits(max_inputs=3, max_queue=3)) as served:
        asked = {"source_sentence": "the river", "sentences": ["the", "river", "anna"]}
        assert len(served.ask("/similarity", inputs=asked)) == 3

"""What is wrong with a request of `huggingface_hub`'s kind is told, whatever it is."""

import pytest


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/models/classifier", {"inputs": [[]]}, "one or two texts"),
        ("/models/classifier", {"inputs": [["a", "b", "c"]]}, "one or two texts"),
        ("/models/classifier", {"inputs": []}, "no inputs"),
        ("/models/classifier/pipeline/text-classification", {"inputs": {"a": "b"}}, "one or two texts"),
        ("/models/classifier", {"inputs": "the", "parameters": {"top_k": "5"}}, "top_k"),
        ("/models/tagger", {"inputs": "the", "parameters": {"ignore_labels": 5}}, "ignore_labels"),
        ("/models/tagger", {"inputs": "the", "parameters": {"ignore_labels": [[1]]}}, "ignore_labels"),
        ("/models/tagger", {"inputs": [["the"]]}, "list of texts"),
        ("/models/tagger/pipeline/token-classification", {"inputs": {"a": 1}}, "list of texts"),
        ("/models/embedder", {"inputs": "the", "parameters": {"truncate": [1]}}, "truncate"),
        ("/models/embedder", {"inputs": "the", "parameters": {"normalize": "yes"}}, "normalize"),
        ("/models/embedder", {"inputs": {"source_sentence": "a", "sentences": [1]}}, "sentences"),
        ("/models/answerer", {"inputs": {"question": "who ?", "context": 5}}, "context"),
        ("/models/filler/pipeline/fill-mask", {"inputs": {"a": 1}}, "list of texts"),
        ("/models/translator", {"inputs": [["two"]]}, "list of texts"),
        ("/models/colours", {"inputs": [["two"]]}, "list of texts"),
        ("/models/embedder", {"inputs": "the", "parameters": 5}, "parameters"),
        ("/models/filler", {"inputs": "the [MASK]", "parameters": {"targets": ["a"]}}, "choose from top_k"),
        ("/models/translator", {"inputs": "two", "parameters": {"num_beams": 3}}, "truncation"),
        ("/models/embedder", {"inputs": 5}, "inputs"),
    ],
)
def test_mistakes(served, path, body, said):
    assert said in served.refuses(path, 422, body)

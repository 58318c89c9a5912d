"""Word vectors beside gensim's: it opens our files, and finds the neighbours that we find."""

from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors, Word2Vec

from bench.word2vec import overlap
from heedful.data import builtin, words
from heedful.data.tokenizer import UNK
from heedful.formats import word2vec
from heedful.formats.word2vec import WordVectors
from heedful.runs.nearest import nearest
from heedful.runs.word_options import WordOptions, WordRecipe, WordRunPart
from heedful.runs.word_vectors import train_vectors


def test_gensim_opens_our_file_and_finds_the_same_neighbours(tmp_path: Path):
    random = np.random.default_rng(0)
    names = (*(f"word{number}" for number in range(97)), "강", ".", "naïve")
    matrix = random.standard_normal((100, 13)).astype(np.float32)
    word2vec.save(names, matrix, tmp_path / "vectors.txt")
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "vectors.txt"))
    assert theirs.index_to_key == list(names)
    assert (theirs.vectors == matrix).all()
    ours = word2vec.load(tmp_path)
    for word in ("word5", "강"):
        (found,) = nearest(ours, [word], top=7)
        expected = theirs.most_similar(word, topn=7)
        assert [near.word for near in found] == [name for name, _ in expected]
        assert [near.similarity for near in found] == pytest.approx([value for _, value in expected], abs=1e-5)
    (found,) = nearest(ours, ["word1"], plus=["word2"], minus=["word3"], top=5)
    expected = theirs.most_similar(positive=["word1", "word2"], negative=["word3"], topn=5)
    assert [near.word for near in found] == [name for name, _ in expected]


def test_we_open_their_file(tmp_path: Path):
    theirs = KeyedVectors(3)
    theirs.add_vectors(["a", "b"], np.array([[1, 0.1, 2], [3, 4, 5]], np.float32))
    theirs.save_word2vec_format(str(tmp_path / "theirs.txt"))
    found = word2vec.load(tmp_path / "theirs.txt")
    assert found.words == ("a", "b")
    assert (found.matrix == theirs.vectors).all()


@pytest.mark.slow
def test_neighbours_agree_as_much_as_those_of_two_seeds(tmp_path: Path):
    text = tmp_path / "text.txt"
    lines = list(islice(chain.from_iterable(builtin.documents()), 4001))
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = WordRecipe(corpus=(str(text),), run=WordRunPart(device="cpu"))
    train_vectors(WordOptions(settings=recipe, out=tmp_path / "out", cache=tmp_path / "cache"))
    ours = word2vec.load(tmp_path / "out")
    tokenizer = words.train(lambda: lines, 5)
    sentences = [
        [token for token in encoding.tokens if token != UNK]
        for encoding in tokenizer.backend.encode_batch(lines, add_special_tokens=False)
    ]
    settings = {"vector_size": 100, "sg": 1, "negative": 5, "window": 5, "sample": 1e-3, "min_count": 5, "workers": 1}
    theirs = [Word2Vec(sentences, epochs=5, seed=seed, **settings).wv for seed in (1, 2)]
    one, two = (WordVectors(ours.words, np.array([each[word] for word in ours.words])) for each in theirs)
    noise = overlap(one, two)
    assert 0.1 < noise < 0.9
    assert (overlap(ours, one) + overlap(ours, two)) / 2 > 0.9 * noise

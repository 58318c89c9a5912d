from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.data import tokenizer as wordpiece
from heedful.data.inputs import Input
from heedful.data.tokenizer import MASK, SPECIAL, Tokenizer
from heedful.errors import UserError
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.predict import generation
from heedful.predict.generation import Choice, Generated, Step, generate

WORDS = ["a", "b", "c", "d", "cat", "dog", "the", "##s", "##t", ".", "(", ")", "'"]
SIZE = len(SPECIAL) + len(WORDS)
CONFIG = BertConfig(vocab_size=SIZE + 3, layers=2, dim=22, heads=2, ffn_dim=31, max_length=29)

Table = Callable[[np.ndarray, int], dict[str, float]]
"""The words that may stand in a place of a text (ids, place), each with its probability."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    return wordpiece.load(folder)


@pytest.fixture(scope="module")
def model() -> BertForPretraining:
    model = BertForPretraining(CONFIG)
    initialise(model, 0.4, torch.Generator().manual_seed(3))
    with torch.no_grad():
        model.mlm.bias.normal_(generator=torch.Generator().manual_seed(5))
    return model.eval()


class Known:
    """A model whose probabilities are those of a table, and which remembers what it was asked."""

    def __init__(self, tokenizer: Tokenizer, table: Table) -> None:
        self.tokenizer = tokenizer
        self.table = table
        self.asked: list[tuple[list[int], list[int]]] = []
        """Ids and places, for every question about one text."""

    def __call__(self, model: object, tokenizer: Tokenizer, batch: Sequence[Input], positions: np.ndarray) -> Tensor:
        if len(batch) == 1:
            self.asked.append((batch[0].ids.tolist(), positions.tolist()))
        starts = np.cumsum([0, *(len(one.ids) for one in batch)])
        found = torch.zeros(len(positions), SIZE)
        for row, position in zip(found, positions, strict=True):
            number = int(np.searchsorted(starts, position, side="right")) - 1
            ids, place = batch[number].ids, int(position - starts[number])
            assert ids[place] == self.tokenizer.mask
            for word, probability in self.table(ids, place).items():
                row[self.tokenizer.vocabulary.index(word)] = probability
        return found

    def places(self) -> list[list[int]]:
        return [places for _, places in self.asked]


@pytest.fixture
def known(
    tokenizer: Tokenizer, model: BertForPretraining, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Generated, Known]]:
    def run(table: Table, text: str, **options: object) -> tuple[Generated, Known]:
        fake = Known(tokenizer, table)
        monkeypatch.setattr(generation, "word_probabilities", fake)
        return generate(model, tokenizer, text, **options), fake

    return run


def fixed(*rows: dict[str, float]) -> Table:
    """The same at a place whatever stands around it; the first blank is at place 1."""
    return lambda _, place: rows[place - 1]


def test_all_blanks_are_filled_then_fewer_and_fewer(known):
    """Of 7 blanks in 3 steps: 7, then 7 * 2/3 and 7 * 1/3, rounded down."""
    sure = [0.5, 0.2, 0.7, 0.1, 0.6, 0.3, 0.4]
    found, asked = known(fixed(*({"cat": p} for p in sure)), "", tokens=7, steps=3)
    assert asked.places()[:3] == [[1, 2, 3, 4, 5, 6, 7], [2, 4, 6, 7], [2, 4]]
    assert found.steps == [
        "cat [MASK] cat [MASK] cat [MASK] [MASK]",
        "cat [MASK] cat [MASK] cat cat cat",
        "cat cat cat cat cat cat cat",
    ]
    assert found.text == found.steps[-1]
    assert found.probability == pytest.approx(2.8 / 7)


def test_of_equally_sure_blanks_the_first_are_emptied(known):
    _, asked = known(fixed(*[{"cat": 0.5}] * 4), "", tokens=4, steps=2)
    assert asked.places()[:2] == [[1, 2, 3, 4], [1, 2]]


def test_more_steps_than_blanks_fill_one_at_least(known):
    found, asked = known(fixed({"cat": 0.5}, {"dog": 0.4}), "", tokens=2, steps=5)
    assert asked.places()[:5] == [[1, 2], [2], [2], [2], [2]]
    assert [one.count(MASK) for one in found.steps] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(("tokens", "steps"), [(1, 1), (3, 3), (17, 10)])
def test_ten_steps_of_mask_predict_or_as_many_as_blanks(known, tokens, steps):
    found, asked = known(lambda *_: {"cat": 0.5}, "", tokens=tokens)
    assert len(found.steps) == steps
    assert [len(places) for places in asked.places()[:steps]] == [tokens * (steps - t) // steps for t in range(steps)]


def test_what_was_kept_stays_as_sure_as_it_was(known):
    """Three blanks in three steps; how sure the model is of each depends on the step.

    Step 1: .3 .4 .47, so the first two are emptied. Step 2 raises them to .48 and .9, and the third, which nobody
    asked about, is now the least sure.
    """
    sure = iter([0.3, 0.4, 0.47, 0.48, 0.9, 0.01])
    asked: list[int] = []

    def table(_: np.ndarray, place: int) -> dict[str, float]:
        asked.append(place)
        return {"cat": next(sure, 0.01)}

    known(table, "", tokens=3, steps=3)
    assert asked[:6] == [1, 2, 3, 1, 2, 3]


def test_whoever_watches_is_told_what_each_step_wrote(known):
    """Two blanks after [CLS] and *a*: both at once, then the less sure one again; or one after the other."""
    rows = {2: {"cat": 0.75, "the": 0.25}, 3: {"dog": 0.5, "the": 0.25}}
    steps: list[Step] = []
    known(lambda _, place: rows[place], "a [MASK] [MASK]", watch=steps.append)
    both = [(2, "cat", 0.75), (3, "dog", 0.5)]
    assert steps == [("a cat [MASK]", both), ("a cat dog", both[1:])]
    steps.clear()
    known(lambda _, place: rows[place], "a [MASK] [MASK]", order="gibbs", temperature=0, steps=2, watch=steps.append)
    assert [(text, sorted(written)) for text, written in steps] == [("a cat dog", both)] * 2


def test_a_blank_is_filled_given_the_others(known, tokenizer):
    """Each letter is certain only where the one before it is known."""

    def table(ids: np.ndarray, place: int) -> dict[str, float]:
        before = tokenizer.vocabulary[ids[place - 1]]
        following = {"a": "b", "b": "c", "c": "d"}.get(before)
        return {following: 0.9, "the": 0.1} if following else {"dog": 0.3, "the": 0.2}

    found, _ = known(table, "a [MASK] [MASK] [MASK]")
    assert found.steps == ["a b [MASK] [MASK]", "a b c [MASK]", "a b c d"]
    assert found.text == "a b c d"
    assert found.probability == pytest.approx(0.9)
    assert known(table, "a", tokens=3, order="gibbs", temperature=0, steps=4)[0].text == "a b c d"


def test_the_best_is_taken_at_temperature_zero(known):
    table = fixed({"cat": 0.26, "dog": 0.25, "the": 0.25, "a": 0.24})
    assert {known(table, "", tokens=1, seed=seed)[0].text for seed in range(23)} == {"cat"}
    drawn = {known(table, "", tokens=1, seed=seed, temperature=1.0)[0].text for seed in range(53)}
    assert drawn == {"cat", "dog", "the", "a"}
    gibbs = {known(table, "", tokens=1, seed=seed, order="gibbs")[0].text for seed in range(53)}
    assert gibbs == {"cat", "dog", "the", "a"}


def chi_square(counts: Sequence[int], shares: Sequence[float]) -> float:
    expected = np.array(shares) / np.sum(shares) * np.sum(counts)
    return float(((np.array(counts) - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("temperature", "top_k", "shares"),
    [
        (1.0, None, [0.4, 0.3, 0.2, 0.1]),
        (0.5, None, [0.16, 0.09, 0.04, 0.01]),
        (2.0, 3, [0.4**0.5, 0.3**0.5, 0.2**0.5, 0]),
        (1.0, 2, [0.4, 0.3, 0, 0]),
        (1.0, 1, [1, 0, 0, 0]),
        (1.0, 97, [0.4, 0.3, 0.2, 0.1]),
        (1e-300, None, [1, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_as_often_as_they_should_be(temperature, top_k, shares):
    choice = Choice(temperature=temperature, top_k=top_k, random=np.random.default_rng(7))
    probabilities = np.array([0.9, 0.1, 0.4, 0.2, 0.3, 0.7], np.float32)
    allowed = np.array([False, True, True, True, True, False])
    drawn = [choice(probabilities, allowed) for _ in range(2003)]
    counts = [drawn.count(number) for number in (2, 4, 3, 1)]
    assert sum(counts) == 2003
    possible = [number for number, share in enumerate(shares) if share]
    assert [count for count, share in zip(counts, shares, strict=True) if not share] == [0] * (4 - len(possible))
    # With 3 degrees of freedom, 21 is passed once in 10,000 times.
    assert chi_square([counts[n] for n in possible], [shares[n] for n in possible]) < 21


def test_gibbs_sampling_visits_texts_as_often_as_their_joint_probability_says(known, tokenizer):
    joint = {
        ("a", "c"): 0.30,
        ("a", "d"): 0.05,
        ("b", "c"): 0.10,
        ("b", "d"): 0.25,
        ("cat", "c"): 0.1,
        ("cat", "d"): 0.2,
    }

    def table(ids: np.ndarray, place: int) -> dict[str, float]:
        other = tokenizer.vocabulary[ids[3 - place]]
        found: dict[str, float] = {}
        for pair, probability in joint.items():
            if other in (pair[2 - place], MASK):
                found[pair[place - 1]] = found.get(pair[place - 1], 0) + probability
        total = sum(found.values())
        return {word: probability / total for word, probability in found.items()}

    texts = [known(table, "", tokens=2, order="gibbs", steps=3, seed=seed)[0].text for seed in range(503)]
    counts = [texts.count(" ".join(pair)) for pair in joint]
    assert sum(counts) == 503
    assert chi_square(counts, list(joint.values())) < 26  # 5 degrees of freedom: once in 10,000 times


def test_gibbs_sampling_goes_round_all_blanks_in_an_order_of_its_own(known, tokenizer):
    found, asked = known(lambda *_: {"cat": 1.0}, "a [MASK] b [MASK] [MASK] c [MASK] d", order="gibbs", steps=6)
    rounds = [asked.asked[first : first + 4] for first in range(0, 24, 4)]
    orders = [[places[0] for _, places in one] for one in rounds]
    assert all(sorted(order) == [2, 4, 5, 7] for order in orders)
    assert len(set(map(tuple, orders))) > 1
    for number, one in enumerate(rounds):
        for visit, (ids, places) in enumerate(one):
            assert len(places) == 1
            # In the first round those still to be visited are empty; later only the one that is visited.
            assert ids.count(tokenizer.mask) == (4 - visit if number == 0 else 1)
    assert found.steps == ["a cat b cat cat c cat d"] * 6
    assert len(known(lambda *_: {"cat": 1.0}, "", order="gibbs")[0].steps) == 10


@pytest.mark.parametrize("order", ["mask-predict", "gibbs"])
def test_the_text_around_the_blanks_is_never_changed(known, tokenizer, order):
    text = "the [MASK] cat ( [MASK] [MASK] ) dog ж [MASK]"
    _, asked = known(lambda *_: {"a": 0.5, "b": 0.3, "c": 0.2}, text, order=order, temperature=1.0)
    vocabulary = tokenizer.vocabulary
    expected = ["[CLS]", "the", None, "cat", "(", None, None, ")", "dog", "[UNK]", None, "[SEP]"]
    assert len(asked.asked) > 3
    for ids, _ in asked.asked:
        assert [None if want is None else vocabulary[i] for i, want in zip(ids, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("text", "written", "shown"),
    [
        ("The Café, [MASK]  ж!", ["cat"], "The Café, cat  ж!"),
        ("The [MASK] [MASK]", ["cat", "##s"], "The cats"),
        ("The cat [MASK] [MASK]", ["##s", "##t"], "The catst"),
        ("The [MASK][MASK] ran", ["a", "cat"], "The a cat ran"),
        ("The [MASK][MASK][MASK] ran", ["cat", "##s", "dog"], "The cats dog ran"),
        ("나는 [MASK]를", ["cat"], "나는 cat를"),
        ("a [MASK]", ["."], "a."),
        ("a [MASK] b [MASK]", ["(", ")"], "a ( b)"),
        ("a [MASK] b [MASK]", ["(", "cat"], "a ( b cat"),
        ("a [MASK] [MASK] [MASK]", ["(", "b", ")"], "a (b)"),
        ("a [MASK] [MASK] [MASK]", ["b", "'", "c"], "a b'c"),
        ("  [MASK] .\n", ["cat"], "  cat .\n"),
        ("a", ["cat", "dog", "."], "a cat dog."),
        ("a \n", ["cat"], "a \ncat"),
        ("", ["cat", "##s"], "cats"),
        ("[mask]", ["cat"], "[mask] cat"),
    ],
)
def test_the_text_is_shown_as_people_write_it(known, text, written, shown):
    blanks: dict[int, str] = {}

    def table(_: np.ndarray, place: int) -> dict[str, float]:
        word = blanks.setdefault(place, written[len(blanks) % len(written)])
        return {word: 0.9, "the": 0.1}

    found, _ = known(table, text, tokens=len(written), steps=1)
    assert found.text == shown
    assert found.steps == [shown]


def test_a_piece_of_a_word_follows_only_a_word(known, tokenizer):
    """Not [CLS], not a full stop, not what the vocabulary lacks; words and other pieces, yes."""
    pieces = {"##s": 0.5, "##t": 0.2, ".": 0.16, "cat": 0.14}
    assert known(lambda *_: pieces, "", tokens=1)[0].text == "."
    assert known(lambda *_: pieces, ".", tokens=1)[0].text == ".."
    assert known(lambda *_: pieces, "ж", tokens=1)[0].text == "ж."
    assert known(lambda *_: pieces, "cat", tokens=2, steps=1)[0].text == "catss"
    # Filled at once, but from left to right: the second sees that the first became a full stop.
    assert known(lambda *_: pieces, "", tokens=2, steps=1)[0].text == ".."


def test_a_blank_may_become_the_word_that_a_piece_continues(known):
    """Whichever of the two is drawn first."""

    def table(_: np.ndarray, place: int) -> dict[str, float]:
        return {"cat": 0.9, "dog": 0.1} if place == 1 else {"##s": 0.9, "dog": 0.1}

    orders = set()
    for seed in range(13):
        found, asked = known(table, "", tokens=2, order="gibbs", steps=1, temperature=0, seed=seed)
        assert found.text == "cats"
        orders.add(tuple(place for (place,) in asked.places()[:2]))
    assert orders == {(1, 2), (2, 1)}


def test_what_a_kept_piece_continues_stays_a_word(known):
    """The second blank is sure of its ##s; the first, when it is filled again, may not become a full stop."""
    first = iter([{"cat": 0.3}, {".": 0.6, "dog": 0.2, "cat": 0.1}])

    def table(_: np.ndarray, place: int) -> dict[str, float]:
        return {"##s": 0.9} if place == 2 else next(first, {"dog": 0.25})

    found, asked = known(table, "", tokens=2, steps=2)
    assert asked.places()[:2] == [[1, 2], [1]]
    assert found.steps == ["[MASK]s", "dogs"]


@pytest.mark.parametrize("order", ["mask-predict", "gibbs"])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_no_special_token_is_written_even_by_a_model_that_wants_nothing_else(tokenizer, order, temperature):
    model = BertForPretraining(CONFIG)
    initialise(model, 0.02, torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.mlm.bias[: len(SPECIAL)] = 300.0
    found = generate(model, tokenizer, "a", tokens=7, order=order, temperature=temperature, steps=2)
    assert not any(special in found.text for special in SPECIAL)
    assert found.probability == 0


@pytest.mark.parametrize("order", ["mask-predict", "gibbs"])
def test_the_same_seed_writes_the_same_text(tokenizer, model, order):
    def write(seed: int) -> Generated:
        return generate(model, tokenizer, "the cat", tokens=7, order=order, temperature=1.0, steps=3, seed=seed)

    first = write(11)
    torch.manual_seed(13)
    np.random.seed(13)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    assert write(11) == first
    assert (torch.get_rng_state() == state[0]).all()
    assert np.random.get_state()[1].tolist() == state[1]
    assert len({write(seed).text for seed in range(7)}) > 1


def test_a_model_in_training_writes_as_one_at_rest(tokenizer, model):
    assert CONFIG.dropout > 0
    expected = generate(model, tokenizer, "the cat", tokens=5)
    assert generate(model.train(), tokenizer, "the cat", tokens=5) == expected


def alone(model: BertForPretraining, ids: Sequence[int], place: int) -> Tensor:
    """The probabilities (V,) of the tokens in one place, without packing."""
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).mlm_logits[0, place].softmax(-1)


@pytest.mark.parametrize("room", [1, 20, 8192])
def test_the_probability_is_that_of_each_token_given_all_others(tokenizer, model, monkeypatch, room):
    monkeypatch.setattr(generation, "BATCH_TOKENS", room)
    text = "the [MASK] cat [MASK] [MASK] dog"
    found = generate(model, tokenizer, text, temperature=1.0, seed=3)
    vocabulary = tokenizer.vocabulary
    ids = [tokenizer.cls, *tokenizer.encode([found.text])[0], tokenizer.sep]
    assert len(ids) == 8
    probabilities = []
    for place in (2, 4, 5):
        emptied = [*ids[:place], tokenizer.mask, *ids[place + 1 :]]
        probabilities.append(alone(model, emptied, place)[ids[place]].item())
    assert vocabulary[ids[1]] == "the"
    assert found.probability == pytest.approx(np.mean(probabilities), rel=1e-4)


def test_the_first_step_takes_what_the_model_finds_best(tokenizer, model):
    ids = [tokenizer.cls, *tokenizer.encode(["the cat"])[0], tokenizer.mask, tokenizer.sep]
    probabilities = alone(model, ids, 3)[:SIZE].clone()
    probabilities[: len(SPECIAL)] = 0
    best = tokenizer.vocabulary[int(probabilities.argmax())]
    found = generate(model, tokenizer, "the cat", tokens=1)
    assert found.text.replace(" ", "") == "thecat" + best.removeprefix("##")
    assert found.probability == pytest.approx(probabilities.max().item(), rel=1e-4)


def test_a_text_that_just_fits(tokenizer, model):
    assert len(generate(model, tokenizer, "cat " * 20, tokens=7, steps=1).steps) == 1
    with pytest.raises(
        UserError, match="are 30 tokens, 8 of them blank, of which the model reads 29 at most; shorten"
    ):
        generate(model, tokenizer, "cat " * 20, tokens=8)
    with pytest.raises(UserError, match="are 30 tokens, 1 of them blank, of which the model reads 29 at most"):
        generate(model, tokenizer, "cat " * 27 + MASK)
    with pytest.raises(UserError, match="are 1,000,000,000,002 tokens"):
        generate(model, tokenizer, "", tokens=10**12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens 0 must be at least 1"),
        ({"steps": 0}, "steps 0 must be at least 1"),
        ({"top_k": 0}, "top_k 0 must be at least 1"),
        ({"seed": -1}, "seed -1 must be at least 0"),
        ({"temperature": -0.5}, "temperature -0.5 must be a number from 0 on; 0 takes the best"),
        ({"temperature": float("nan")}, "temperature nan must be a number"),
        ({"temperature": float("inf")}, "temperature inf must be a number"),
        ({"order": "mask"}, "order 'mask' is not known; choose from mask-predict, gibbs"),
    ],
)
def test_what_cannot_be_is_refused(tokenizer, model, options, message):
    with pytest.raises(UserError) as caught:
        generate(model, tokenizer, "a [MASK]", **options)
    assert str(caught.value).startswith(message)

import math
import sys

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from heedful.errors import UserError
from heedful.metrics.translation import bleu, bleu_score, chrf, corpus, tokenised_bleu

HYPOTHESES = ["The cat sat on the mat.", "A dog runs through the tall grass", "Zwei Männer, die (laut) lachen.", ""]
REFERENCES = ["The cat is on the mat.", "A dog runs in the tall grass.", "Zwei Männer lachen laut.", "Hello you!"]
TEXTS = st.text(st.sampled_from("ab cd'.,ÄÖ 서울“’"), max_size=23)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=7)


def test_as_sacrebleu_gives_them():
    assert bleu(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert bleu_score(HYPOTHESES, REFERENCES) == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert chrf(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_bleu_by_hand():
    # 6 tokens each: 5 of 6 words, 3 of 5 pairs, 2 of 4 triples and 1 of 3 fours are right; no penalty
    found = bleu(["the cat sat on the mat"], ["the dog sat on the mat"]).score
    assert found == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4))
    # 5 tokens of 7, all right
    assert bleu(["a b c d e"], ["a b c d e f g"]).score == pytest.approx(100 * math.exp(1 - 7 / 5))


def test_case_and_punctuation_count():
    assert bleu(["A cat, a dog."], ["a cat, a dog."]).score < 100
    assert bleu(["A cat , a dog ."], ["A cat, a dog."]).score == pytest.approx(100)  # 13a parts both alike


def test_signatures_say_how():
    version = f"version:{sacrebleu.__version__}"
    assert bleu(HYPOTHESES, REFERENCES).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert chrf(HYPOTHESES, REFERENCES).signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"
    assert tokenised_bleu(HYPOTHESES, REFERENCES).signature == (
        f"nrefs:1|case:lc|eff:no|tok:13a|smooth:none|{version}|before:plain-punctuation,cut-apostrophes"
    )


def test_a_corpus_has_its_figures_in_order():
    two = [bleu(HYPOTHESES, REFERENCES), chrf(HYPOTHESES, REFERENCES)]
    assert corpus(HYPOTHESES, REFERENCES) == two
    assert corpus(HYPOTHESES, REFERENCES, tokenised=True) == [*two, tokenised_bleu(HYPOTHESES, REFERENCES)]
    names = [figure.name for figure in corpus(HYPOTHESES, REFERENCES, tokenised=True)]
    assert names == ["BLEU", "chrF2", "BLEU, lower-cased and tokenised (as in older papers)"]


@pytest.mark.parametrize("language", ["zh", "zh-CN", "ZH_tw", "zho_Hans"])
def test_chinese_is_cut_by_sacrebleu(language: str):
    hypotheses, references = ["我喜欢喝绿茶。"], ["我喜欢喝红茶。"]
    found = bleu(hypotheses, references, language=language)
    assert "|tok:zh|" in found.signature
    assert found.score == sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert found.score > 0 == bleu(["我 绿"], ["我 红"], language="de").score


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("ja", "ja-mecab"), ("ko", "ko-mecab"), ("kor_Hang", "ko-mecab")]
)
def test_without_mecab_characters_count_and_the_name_says_so(
    language: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch
):
    for module in ("ja", "ko"):
        monkeypatch.delitem(sys.modules, f"sacrebleu.tokenizers.tokenizer_{module}_mecab", raising=False)
    for missing in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, missing, None)
    hypotheses, references = ["삼십사만 이천칠"], ["삼십사만 이천팔"]
    figure, chars = corpus(hypotheses, references, language=language)[0], BLEU(tokenize="char")
    assert figure.name == f"BLEU of characters ({tokenizer} is not installed)"
    assert "|tok:char|" in figure.signature
    assert figure.score == chars.corpus_score(hypotheses, [references]).score
    # 7 of 7 characters but the last: 6/7 · 5/6 · 4/5 · 3/4
    assert figure.score == pytest.approx(100 * (3 / 7) ** (1 / 4))
    assert bleu_score(hypotheses, references, language=language) == figure.score


def test_short_answers_that_are_right_score_in_training():
    assert bleu_score(["이천 칠"], ["이천 칠"]) == pytest.approx(100)
    assert bleu(["이천 칠"], ["이천 칠"]).score == 0  # no four words in a row
    assert bleu_score(["이천 팔", "삼"], ["이천 칠", "삼"]) < 100


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("Un chien près de L'eau.", "un chien près de l' eau ."),
        ("Un chien près de l’eau !", "un chien près de l' eau !"),
        ("Er sagt: „Guten Tag“, und geht", 'er sagt : " guten tag " , und geht'),
        ("Ein saftig-grünes T-Shirt liegt dort", "ein saftig-grünes t-shirt liegt dort"),  # hyphens join
        ("Elle a crié « non » hier", 'elle a crié " non " hier'),
    ],
)
def test_tokenised_bleu_sees_these_tokens(written: str, tokens: str):
    assert tokenised_bleu([written], [tokens]).score == pytest.approx(100)
    glued = tokens.replace(" ", "·", 1)
    assert tokenised_bleu([written], [glued]).score < 100


@pytest.mark.parametrize(
    ("language", "references", "hypotheses"),
    [
        (
            "fr",
            ["Un terrier court sur l'herbe, près d'une clôture.", "Qu'il aime l'eau (froide) d'hiver !"],
            ["Un chien court sur l'herbe près d'une clôture.", "Il aime l'eau (chaude) d'hiver !"],
        ),
        (
            "de",
            ["Ein Mann im T-Shirt hält ein Schild: „Halt“.", "Drei Leute sitzen in einer U-Bahn, lachend."],
            ["Ein Mann in Hemd hält ein Schild: „Halt“.", "Drei Menschen sitzen in einer U-Bahn, lachend."],
        ),
    ],
)
def test_tokenised_bleu_is_that_of_moses(language: str, references: list[str], hypotheses: list[str]):
    cut, normal = MosesTokenizer(lang=language), MosesPunctNormalizer(lang=language)

    def moses(texts: list[str]) -> list[str]:
        return [str(cut.tokenize(normal.normalize(t.lower()), escape=False, return_str=True)) for t in texts]

    oracle = BLEU(tokenize="none", smooth_method="none", force=True)
    wanted = oracle.corpus_score(moses(hypotheses), [moses(references)]).score
    assert 20 < wanted < 90
    assert tokenised_bleu(hypotheses, references).score == pytest.approx(wanted)


def test_tokenised_bleu_is_not_smoothed():
    assert tokenised_bleu(["a b c d"], ["a b c e"]).score == 0 < bleu(["a b c d"], ["a b c e"]).score


@settings(max_examples=50, deadline=None)
@given(PAIRS)
def test_figures_lie_between_0_and_100(pairs: list[tuple[str, str]]):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    scores = [figure.score for figure in corpus(hypotheses, references, tokenised=True)]
    scores.append(bleu_score(hypotheses, references))
    assert all(0 <= score <= 100 + 1e-9 for score in scores)
    same = bleu_score(references, references)
    assert same == pytest.approx(100 if any(text.strip() for text in references) else 0)


@pytest.mark.parametrize("score", [bleu, chrf, tokenised_bleu, corpus, bleu_score])
def test_what_cannot_be_scored(score):
    with pytest.raises(UserError, match=r"^3 translations and 2 references are not as many; give a reference a"):
        score(["a", "b", "c"], ["a", "b"])
    with pytest.raises(UserError, match=r"^there are no translations to score; give at least one$"):
        score([], [])

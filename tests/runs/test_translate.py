import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.predict import Translator, load_translator
from heedful.predict.reading import Pace
from heedful.predict.translator import NOTHING
from heedful.runs import translate as runs
from heedful.runs.translate import Wanted, as_table, links, translate

Make = Callable[[str], Path]
TEXTS = ["three one four", "", "nine", "two seven one eight two"]
ANSWERS = ["삼 일 사", "", "구", "이 칠 일 팔 이"]


@pytest.fixture(scope="module")
def good(translator: Make) -> Translator:
    return load_translator(translator("good"), "cpu")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return written(tmp_path / "texts.txt", TEXTS)


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def wanted(options: dict[str, object] | None = None, **changes: object) -> Wanted:
    return Wanted(options=SearchOptions(**(options or {})), **changes)  # type: ignore[arg-type]


def said(capsys: pytest.CaptureFixture, good: Translator, source: Path | None, asked: Wanted) -> list[str]:
    assert translate(good, source, None, asked) is None
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_line_n_answers_line_n(
    good: Translator, texts: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, chunk: int
):
    monkeypatch.setattr(runs, "Pace", lambda: Pace(chunk))
    assert said(capsys, good, texts, wanted()) == ANSWERS


def test_columns_are_number_rank_score_text_and_alignment(
    good: Translator, texts: Path, capsys: pytest.CaptureFixture
):
    rows = [
        line.split("\t") for line in said(capsys, good, texts, wanted({"n_best": 2}, score=True, alignments=True))
    ]
    assert [row[:2] for row in rows] == [
        *(["1", "1"], ["1", "2"], ["2", "1"]),
        *(["3", "1"], ["3", "2"], ["4", "1"], ["4", "2"]),
    ]
    best = [row for row in rows if row[1] == "1"]
    assert [row[3] for row in best] == ANSWERS
    assert [row[4] for row in best] == ["0-0 1-1 2-2", "", "0-0", "0-0 1-1 2-2 3-3 4-4"]
    (expected,) = good.n_best(["three one four"], n_best=2)
    assert [float(row[2]) for row in rows[:2]] == pytest.approx([one.score for one in expected], rel=1e-4)
    assert said(capsys, good, texts, wanted(alignments=True))[0] == "삼 일 사\t0-0 1-1 2-2"
    assert said(capsys, good, texts, wanted(score=True))[1] == "0\t"


def test_json_holds_all_that_is_known(good: Translator, texts: Path, capsys: pytest.CaptureFixture):
    found = [json.loads(line) for line in said(capsys, good, texts, wanted(json=True, alignments=True))]
    assert [one["source"] for one in found] == TEXTS
    assert [one["translations"][0]["text"] for one in found] == ANSWERS
    one = found[2]["translations"][0]
    assert one["alignment"]["source"] == ["▁nine", "</s>"]
    assert one["alignment"]["target"] == ["▁구", "</s>"]
    assert one["alignment"]["words"] == [[0, 0]]
    assert [round(sum(row), 2) for row in one["alignment"]["weights"]] == [1.0, 1.0]
    assert one["score"] == pytest.approx(one["log_prob"] / 2)
    assert "alignment" not in found[1]["translations"][0]
    assert as_table(NOTHING) == {"text": "", "score": None, "log_prob": None}
    assert links(None) == ""


def test_given_translations_are_scored(good: Translator, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    given = written(tmp_path / "given.txt", ["삼 일 사", "", "일", " 이  칠 일 팔 이 "])
    lines = said(capsys, good, texts, wanted(given=given))
    expected = good.score([TEXTS[0], TEXTS[2], TEXTS[3]], ["삼 일 사", "일", "이 칠 일 팔 이"])
    assert lines[1] == ""
    assert [float(line) for line in lines if line] == pytest.approx([one.log_prob for one in expected], rel=1e-4)
    row = said(capsys, good, texts, wanted(given=given, score=True, alignments=True))[0].split("\t")
    assert float(row[0]) == pytest.approx(float(row[1]) / 4, rel=1e-4)
    assert row[2] == "0-0 1-1 2-2"
    found = json.loads(said(capsys, good, texts, wanted(given=given, json=True))[2])
    assert found["translations"][0]["text"] == "일"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["삼"], "there are more sources than translations: GIVEN must have one line for each source, but number 2"),
        (["삼", "", "구", "이", "이"], "there are more translations than sources: GIVEN must have one line for each"),
        (["삼", "일", "구", "이"], "TEXTS:2: the source is empty, but the translation is not; fill it in, or pass"),
        (["삼", "", "", "이"], "TEXTS:3: the translation is empty, but the source is not; fill it in, or pass over"),
    ],
)
def test_given_translations_must_fit(good: Translator, texts: Path, tmp_path: Path, lines: list[str], problem: str):
    given = written(tmp_path / "given.txt", lines)
    with pytest.raises(UserError) as caught:
        translate(good, texts, tmp_path / "out.txt", wanted(given=given))
    assert str(caught.value).startswith(problem.replace("GIVEN", str(given)).replace("TEXTS", str(texts)))
    assert not (tmp_path / "out.txt").exists()


def test_a_search_and_given_translations_exclude_each_other(good: Translator, texts: Path, tmp_path: Path):
    with pytest.raises(
        UserError, match="--given scores translations that are there; leave out what a search is told"
    ):
        wanted({"beam": 3}, given=texts)
    with pytest.raises(UserError, match="--given scores translations"):
        wanted(given=texts, prefix="일")
    table = written(tmp_path / "given.tsv", ["a\tb"])
    with pytest.raises(UserError, match=r"given.tsv is a table; --given takes a file with one translation a line"):
        translate(good, texts, None, wanted(given=table))


def test_what_is_bad_stops_or_leaves_an_empty_line(good: Translator, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = written(tmp_path / "long.txt", ["one", "nine " * 10_000, "two"])
    with pytest.raises(UserError) as caught:
        translate(good, path, None, wanted())
    problem = f"{path}:2: 10,000 tokens are beyond the model's 28; split it, cut it with --truncate"
    assert str(caught.value) == f"{problem}, or pass over such rows with --skip-bad"
    capsys.readouterr()
    assert translate(good, path, None, wanted(skip_bad=True)) == f"no translation of 1 bad row: {problem}"
    assert capsys.readouterr().out == "일\n\n이\n"
    translate(good, path, None, wanted({"n_best": 2}, skip_bad=True, score=True, alignments=True))
    assert capsys.readouterr().out.splitlines()[2] == "2\t1\t\t\t"
    translate(good, path, None, wanted(skip_bad=True, json=True))
    assert json.loads(capsys.readouterr().out.splitlines()[1]) == {"error": problem}
    remark = "1 text is too long; only the beginning is read"
    assert translate(good, path, None, wanted(truncate=True)) == remark
    assert capsys.readouterr().out.splitlines()[1].startswith("구")


def test_characters_never_seen_are_told_once(good: Translator, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = written(tmp_path / "strange.txt", ["one ☃", "ㅎ two ☃", "three"])
    assert translate(good, path, None, wanted()) == "never seen: ☃ ㅎ; the model reads <unk> there"
    assert len(capsys.readouterr().out.splitlines()) == 3
    many = written(tmp_path / "many.txt", ["".join(chr(0x4E00 + number) for number in range(31))])
    remark = translate(good, many, None, wanted(truncate=True))
    assert remark is not None
    assert remark.startswith("never seen: 一 ")
    assert " …; the model reads <unk> there" in remark
    given = written(tmp_path / "given.txt", ["일 ☂"])
    one = written(tmp_path / "one.txt", ["one"])
    assert translate(good, one, None, wanted(given=given)) == "never seen: ☂; the model reads <unk> there"


def test_nothing_to_read_is_said(good: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    empty = written(tmp_path / "empty.txt", [])
    with pytest.raises(UserError, match=r"empty.txt holds nothing to translate; give a file that does$"):
        translate(good, empty, tmp_path / "out.txt", wanted())
    assert not (tmp_path / "out.txt").exists()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False))
    assert translate(good, None, None, wanted()) == "there was nothing to read"


def test_what_is_typed_is_answered_line_by_line(
    good: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    heard: list[str] = []

    class Typed:
        """Looks at what was answered whenever another line is asked for."""

        def __init__(self) -> None:
            self.lines = [b"one\n", b"two\n"]

        def readline(self, _: int) -> bytes:
            heard.append(capsys.readouterr().out)
            return self.lines.pop(0) if self.lines else b""

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Typed(), isatty=lambda: True))
    assert translate(good, None, None, wanted()) is None
    assert heard == ["", "일\n", "이\n"]


def test_a_long_stream_is_never_held_as_a_whole(
    good: Translator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    read = []

    def endless(*_: object, **__: object) -> Iterator[PairExample]:
        for number in range(10**9):
            read.append(number)
            if number == 701:
                raise KeyboardInterrupt
            yield PairExample(f"here:{number}", "one", None)

    monkeypatch.setattr(runs.parallel, "sources", endless)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(KeyboardInterrupt):
        translate(good, None, None, wanted({"beam": 1}))
    assert capsys.readouterr().out == "일\n" * 512  # two whole chunks of the stream
    assert len(read) == 702


def test_a_table_gives_its_column_and_an_answer_takes_its_name_when_it_is_whole(good: Translator, tmp_path: Path):
    table = written(tmp_path / "table.tsv", ["en\tnote", "two six\tx", "nine\ty"])
    assert translate(good, table, tmp_path / "out.txt", wanted(column="en")) is None
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "이 육\n구\n"
    with pytest.raises(UserError, match=r"out.txt exists already; choose another --out$"):
        translate(good, table, tmp_path / "out.txt", wanted(column="en"))
    with pytest.raises(UserError, match="there is no column 'de' among en, note"):
        translate(good, table, None, wanted(column="de"))


def test_scores_after_other_penalties(good: Translator, texts: Path, capsys: pytest.CaptureFixture):
    line = said(capsys, good, texts, wanted({"penalty": "gnmt", "length_penalty": 0.6}, score=True))[2]
    log_prob = good.translate("nine").log_prob
    assert float(line.split("\t")[0]) == pytest.approx(log_prob / (7 / 6) ** 0.6, rel=1e-3)

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from heedful.config import to_toml
from heedful.data.numbers import english, korean
from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.metrics.translation import bleu_score
from heedful.predict import load_translator
from heedful.runs import translator, translator_judge, translator_material
from heedful.runs.translator_evaluate import TranslationTest, evaluate
from heedful.runs.translator_judge import TranslatorJudge
from heedful.runs.translator_material import TranslatorMaterial, gather
from heedful.runs.translator_options import (
    PairsPart,
    SubwordsPart,
    TranslatorLearningPart,
    TranslatorModelPart,
    TranslatorOptions,
    TranslatorRecipe,
    TranslatorRun,
    read_recipe,
    resolved,
)
from heedful.train.log import Log

NUMBERS = range(3, 20_000, 331)
DEV = range(7, 20_000, 1531)
Scripted = Callable[[list[float]], list[dict[str, Tensor]]]


def write(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("en\tko\n" + "".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> TranslatorRecipe:
    """A very small run."""
    home = tmp_path_factory.mktemp("numbers")
    return TranslatorRecipe(
        train=(write(home / "train.tsv", [(english(number), korean(number)) for number in NUMBERS]),),
        dev=(write(home / "dev.tsv", [(english(number), korean(number)) for number in DEV]),),
        model=TranslatorModelPart(model="rnn", dropout=0.1),
        learning=TranslatorLearningPart(batch_tokens=512, lr=1e-2, average=3),
        run=TranslatorRun(device="cpu", checkpoint_every="1h", steps=10, evaluations=5),
    )


def changed(recipe: TranslatorRecipe, **changes: Any) -> TranslatorRecipe:
    """`part__field=value` or `field=value` changes a recipe."""
    for name, value in changes.items():
        part, _, field = name.partition("__")
        recipe = replace(recipe, **{part: replace(getattr(recipe, part), **{field: value}) if field else value})
    return recipe


def go(recipe: TranslatorRecipe, out: Path, **options: Any) -> dict[str, float]:
    return translator.train_translator(TranslatorOptions(settings=recipe, out=out, **options))


def prepared(recipe: TranslatorRecipe, **changes: Any) -> tuple[TranslatorRecipe, TranslatorMaterial]:
    whole = resolved(changed(recipe, **changes), dim=128)
    return whole, gather(whole, Log(Path("nowhere"), leads=False))


def judged(recipe: TranslatorRecipe, **changes: Any) -> TranslatorJudge:
    whole, material = prepared(recipe, **changes)
    return TranslatorJudge(translator.build(whole, material), material, whole)


def weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Has evaluations find given BLEUs; the weights at each of them are collected."""

    def make(values: list[float]) -> list[dict[str, Tensor]]:
        seen: list[dict[str, Tensor]] = []
        coming = iter(values)

        def bleu(judge: TranslatorJudge, _: list[str]) -> float:
            seen.append({name: tensor.clone() for name, tensor in judge.model.state_dict().items()})
            return next(coming)

        monkeypatch.setattr(TranslatorJudge, "bleu", bleu)
        return seen

    return make


@pytest.mark.parametrize(
    ("average", "of", "bleus", "chosen", "bleu"),
    [
        (1, "best", [1, 5, 4, 3, 2, 5], [1], 5),
        (2, "best", [1, 5, 4, 3, 2, 6], [1, 2], 6),
        (2, "best", [1, 5, 4, 3, 2, 4.5], [1], 5),  # the mean is worse than the best of them
        (2, "best", [3, 3, 3, 3, 3, 7], [3, 4], 7),  # of equals the later
        (3, "last", [9, 5, 4, 3, 2, 6], [2, 3, 4], 6),
        (7, "best", [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4], 6),  # there are but five
    ],
)
def test_the_result_is_the_mean_of_the_right_states(
    tmp_path: Path,
    recipe: TranslatorRecipe,
    scripted: Scripted,
    average: int,
    of: str,
    bleus: list[float],
    chosen: list[int],
    bleu: float,
):
    """Five evaluations while training and one of the mean."""
    seen = scripted(bleus)
    found = go(changed(recipe, learning__average=average, learning__average_of=of), tmp_path / "out")
    assert found == {"bleu": bleu}
    result = json.loads((tmp_path / "out/evaluation.json").read_text(encoding="utf-8"))
    assert (result["scores"], result["examples"]) == ({"bleu": bleu}, len(DEV))
    assert result["averaged"] == [2 * (number + 1) for number in chosen]
    assert len(seen) == 6
    saved = load_translator(tmp_path / "out", "cpu").searcher.models[0].state_dict()  # pyrefly: ignore
    for name, tensor in saved.items():
        expected = torch.stack([seen[number][name].double() for number in chosen]).mean(0)
        torch.testing.assert_close(tensor, expected.float(), rtol=0, atol=1e-7)


def test_it_stops_when_nothing_gets_better(tmp_path: Path, recipe: TranslatorRecipe, scripted: Scripted):
    seen = scripted([2, 3, 3, 1, 9])  # the last is that of the mean
    go(changed(recipe, learning__patience=2), tmp_path / "out")
    assert len(seen) == 5
    lines = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["step"], line["bleu"]) for line in lines if line["kind"] == "heldout"] == [
        (2, 2),
        (4, 3),
        (6, 3),
        (8, 1),
    ]


def test_a_seed_decides_everything(tmp_path: Path, recipe: TranslatorRecipe):
    for name, seed in (("one", 3), ("same", 3), ("other", 5)):
        go(changed(recipe, run__seed=seed, run__steps=3), tmp_path / name)
    one, same, other = (weights(tmp_path / name) for name in ("one", "same", "other"))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one if one[name].ndim > 1)


@pytest.mark.parametrize("model", ["rnn", "transformer"])
@pytest.mark.parametrize("joint", [True, False])
def test_the_folder_translates_as_the_model_did_in_the_end(
    tmp_path: Path, recipe: TranslatorRecipe, model: str, joint: bool
):
    steps = 60 if model == "rnn" else 3
    small = changed(recipe, model__model=model, vocabulary__joint=joint, run__steps=steps, run__evaluations=2)
    found = go(small, tmp_path / "out")
    assert (tmp_path / "out/target_tokenizer.json").exists() != joint
    test = TranslationTest(pairs=PairsPart(), search=SearchOptions(beam=1))
    result = evaluate(load_translator(tmp_path / "out", "cpu"), small.dev, test)
    texts, references = [one.text for one in result.translations], [one.target or "" for one in result.examples]
    assert len(set(texts)) > 1 or model == "transformer"
    assert bleu_score(texts, references) == pytest.approx(found["bleu"])


def test_a_dev_source_without_end_stays_beside_its_reference(tmp_path: Path, recipe: TranslatorRecipe):
    pairs = [("seven", "칠"), ("five " * 1009, "오"), ("", ""), ("eight", "팔")]
    judge = judged(recipe, dev=(write(tmp_path / "dev.tsv", pairs),))
    assert judge.references == ["칠", "오", "팔"]
    assert len(judge.prepared) == len(judge.translations()) == 3
    assert "1 dev source is too long; only the beginning is read" in judge.remarks


def test_a_large_dev_set_is_evaluated_on_in_part(recipe: TranslatorRecipe, monkeypatch: pytest.MonkeyPatch):
    assert translator_judge.MOST_EXAMPLES == 2000
    monkeypatch.setattr(translator_judge, "MOST_EXAMPLES", 5)
    judge = judged(recipe)
    assert len(DEV) == 14
    assert [one.source for one in judge.examples] == [english(DEV[number]) for number in (0, 2, 5, 8, 11)]
    assert len(judge.prepared) == len(judge.references) == 5
    assert judge.remarks[0] == "while training, BLEU is counted on 5 of the 14 dev pairs"


def test_targets_without_spaces_are_compared_by_characters(tmp_path: Path, recipe: TranslatorRecipe):
    pairs = [("seven hundred", "칠백이요오육"), ("six hundred one", "육백일이요오"), ("eight", "팔 구")]
    dev = (write(tmp_path / "dev.tsv", pairs),)
    judge = judged(recipe, dev=dev)
    assert judge.remarks == ["the targets have hardly any spaces, hence BLEU counts characters, not words"]
    near = ["칠백이요오칠", "육백일이요오", "팔 구"]
    assert 50 < judge.bleu(near) < 100
    assert judged(recipe, dev=dev, pairs__language="en").remarks == []
    assert judged(recipe).remarks == []


def test_pairs_are_held_out_by_their_sources(tmp_path: Path, recipe: TranslatorRecipe):
    """Every sentence has three translations, which must not be on both sides."""
    pairs = [(english(number), f"{korean(number)} {more}") for number in NUMBERS for more in "일이삼"]
    small = changed(recipe, train=(write(tmp_path / "train.tsv", pairs),), dev=(), pairs__held_out=0.3)
    whole, material = prepared(small)
    held = {one.source for one in material.dev}
    assert len(material.dev) == 3 * len(held)
    assert material.count + len(material.dev) == len(pairs)
    assert 5 < len(held) < 35
    assert [one.source for one in prepared(whole)[1].dev] == [one.source for one in material.dev]


def test_tables_and_files_give_the_same_pairs(tmp_path: Path, recipe: TranslatorRecipe):
    halves = [range(3, 9000, 331), range(9000, 20_000, 331)]
    names = []
    for part, numbers in enumerate(halves):
        for ending, say in (("en", english), ("ko", korean)):
            path = tmp_path / f"{part}.{ending}"
            path.write_text("".join(f"{say(number)}\n" for number in numbers), encoding="utf-8")
        write(tmp_path / f"{part}.tsv", [(english(number), korean(number)) for number in numbers])
        names.append(str(tmp_path / str(part)))
    tables = changed(recipe, train=tuple(f"{name}.tsv" for name in names))
    two = changed(
        recipe, train=(), source=tuple(f"{name}.en" for name in names), target=tuple(f"{name}.ko" for name in names)
    )
    backwards = changed(recipe, train=tables.train, source=("ko",), target=("en",))
    found, same, other = (prepared(one)[1] for one in (tables, two, backwards))
    assert found.count == same.count == other.count == sum(map(len, halves))
    for one, like, turned in zip(found.pairs(0), same.pairs(0), reversed(other.pairs(0)), strict=True):
        assert [ids.tolist() for ids in one] == [ids.tolist() for ids in like]
        assert [found.source.decode(ids) for ids in one] == [other.source.decode(ids) for ids in turned]
    assert found.digest != same.digest
    assert [one.source for one in other.dev] == [korean(number) for number in DEV]


def test_the_data_has_changed_if_any_file_has(tmp_path: Path, recipe: TranslatorRecipe):
    dev = write(tmp_path / "dev.tsv", [("seven", "칠")])
    one = prepared(recipe, dev=(dev,))[1].digest
    assert prepared(recipe, dev=(dev,))[1].digest == one
    write(tmp_path / "dev.tsv", [("seven", "팔")])
    assert prepared(recipe, dev=(dev,))[1].digest != one


def test_merges_are_left_out_at_random_but_sentences_stay_short_enough(recipe: TranslatorRecipe):
    bpe = SubwordsPart(bpe_dropout=0.9)
    whole, material = prepared(recipe, vocabulary=bpe, pairs__length=29)
    longest = max(len(ids) for epoch in range(5) for side in material.pairs(epoch) for ids in side)
    assert 20 < longest <= 29
    usual, first, second = prepared(recipe, pairs__length=29)[1].pairs(0), material.pairs(0), material.pairs(1)
    lengths = [sum(map(len, side.sources)) for side in (usual, first, second)]
    assert lengths[0] < min(lengths[1:])
    assert [ids.tolist() for ids in first.sources] != [ids.tolist() for ids in second.sources]
    again = prepared(whole)[1].pairs(1)
    assert [ids.tolist() for ids in again.targets] == [ids.tolist() for ids in second.targets]


def test_a_model_has_room_for_the_longest_sentence(recipe: TranslatorRecipe):
    for length, positions in ((256, 512), (511, 512), (512, 513), (2003, 2004)):
        whole, material = prepared(recipe, pairs__length=length)
        assert translator.build(whole, material).config.max_length == positions


def test_what_is_left_out_is_told(tmp_path: Path, recipe: TranslatorRecipe, capsys: pytest.CaptureFixture):
    pairs = [(english(number), korean(number)) for number in NUMBERS]
    for more in (1, 2):
        file = write(tmp_path / "train.tsv", [*pairs, *[("five " * 300, "오")] * more])
        material = translator_material.gather(
            resolved(changed(recipe, train=(file,)), dim=128), Log(tmp_path, leads=True)
        )
        assert material.count == len(pairs)
        noun = "1 pair" if more == 1 else "2 pairs"
        assert f"left out {noun} with more than 256 tokens on a side" in capsys.readouterr().out


def test_a_run_that_began_with_what_is_refused_now_goes_on(recipe: TranslatorRecipe, tmp_path: Path):
    """Its folder says what it was told in vain; that is no reason to begin anew."""
    told, out = resolved(changed(recipe, pairs__held_out=0.5, run__steps=2), dim=128), tmp_path / "out"
    with pytest.raises(UserError, match="leave --held-out out"):
        go(told, out)
    out.mkdir()
    (out / "heedful.toml").write_text(to_toml(told), encoding="utf-8")
    go(read_recipe(out / "heedful.toml"), out, resume=True)
    assert (out / "model.safetensors").is_file()

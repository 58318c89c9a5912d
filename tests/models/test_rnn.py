import dataclasses
import math
import os
import subprocess
import sys
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.models.rnn import CELLS, SIZES, Memory, Rnn, RnnConfig, initialise
from heedful.nn.scores import SCORES

LENGTHS = (5, 2, 7)
B, S, T, K, VOCABULARY = 3, 7, 11, 2, 61
CONFIG = RnnConfig(vocab_size=VOCABULARY, layers=2, dim=26, max_length=17)
KINDS = [
    pytest.param(RnnConfig(**dataclasses.asdict(CONFIG) | changes), id="-".join(map(str, changes.values())))
    for changes in (
        dict(zip(("score", "cell", "input_feeding", "bidirectional"), values, strict=True))
        for values in product(SCORES, CELLS, (True, False), (True, False))
    )
]
"""Every score with every cell, with and without input feeding, one way and both ways."""
every_kind = pytest.mark.parametrize("config", KINDS)
FEW = [dataclasses.replace(CONFIG, cell=cell, input_feeding=feeding) for cell in CELLS for feeding in (True, False)]
few_kinds = pytest.mark.parametrize("config", FEW, ids=lambda config: f"{config.cell}-{config.input_feeding}")


def model(config: RnnConfig = CONFIG) -> Rnn:
    made = Rnn(config).eval()
    initialise(made, dataclasses.replace(config, init_range=0.5), torch.Generator().manual_seed(1))
    return made


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    target = ids(B, T, seed=2)
    target[:, 0] = CONFIG.sos
    return ids(B, S).masked_fill(~mask, CONFIG.pad), mask, target


def count(config: RnnConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Rnn(config).parameters())


@torch.no_grad()
def test_one_step_by_hand():
    config = RnnConfig(vocab_size=3, layers=1, dim=2, cell="gru", bidirectional=False, score="dot")
    made = Rnn(config).eval()
    for parameter in made.parameters():
        parameter.zero_()
    # A GRU of zeros halves its state: z is 1/2 and the candidate is 0. So (2 ln 3, 0) becomes (ln 3, 0), scores the
    # keys (1, 0) and (0, 1) with ln 3 and 0, and weighs them 3/4 and 1/4; the padding would have won by far.
    memory = Memory(
        torch.tensor([[[1.0, 0.0], [0.0, 1.0], [50.0, 50.0]]]),
        torch.tensor([[True, True, False]]),
        (torch.tensor([[[2 * math.log(3), 0.0]]]),),
    )
    made.join.weight.copy_(torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 4.0, 1 / math.log(3), 0.0]]))
    made.source_embedding.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
    logits, state, weights = made.step(made.start(memory, 1), torch.tensor([[1]]), None, explain=True)
    first, second = math.tanh(2 * 0.75), math.tanh(4 * 0.25 + 1)
    assert_close(weights, torch.tensor([[[0.75, 0.25, 0.0]]]))
    assert_close(state.joined, torch.tensor([[[first, second]]]))
    assert_close(state.hidden[0], torch.tensor([[[[math.log(3), 0.0]]]]))
    assert_close(logits, torch.tensor([[[first, second, first - second]]]))


@every_kind
@torch.no_grad()
def test_stepping_gives_what_the_whole_pass_gives(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    whole, seen = made(source, mask, target), made.align(source, mask, target)
    state = made.start(made.encode(source, mask), 1)
    for t in range(T):
        logits, state, weights = made.step(state, target[:, t : t + 1], None, explain=True)
        assert_close(logits[:, 0], whole[:, t], atol=1e-5, rtol=1e-5)
        assert_close(weights[:, 0], seen[:, t], atol=1e-5, rtol=1e-5)


@every_kind
@torch.no_grad()
def test_padding_changes_nothing(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    expected = made(source, mask, target)
    wider = F.pad(source, (0, 3), value=CONFIG.pad), F.pad(mask, (0, 3))
    assert_close(made(*wider, target), expected, atol=1e-6, rtol=0)
    assert_close(made(source.masked_fill(~mask, 59), mask, target), expected, atol=1e-6, rtol=0)
    for b, length in enumerate(LENGTHS):
        alone = made(source[b : b + 1, :length], mask[b : b + 1, :length], target[b : b + 1])
        assert_close(alone[0], expected[b], atol=1e-5, rtol=1e-5)


@every_kind
@torch.no_grad()
def test_a_later_target_token_changes_no_earlier_score(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    before = made(source, mask, target)
    for t in range(1, T):
        changed = target.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCABULARY
        after = made(source, mask, changed)
        assert_close(after[:, :t], before[:, :t], atol=1e-6, rtol=0)
        assert not torch.allclose(after[:, t], before[:, t], atol=1e-4)


@few_kinds
@torch.no_grad()
def test_every_real_source_token_matters(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    before = made(source, mask, target)
    for b, s in mask.nonzero().tolist():
        changed = source.clone()
        changed[b, s] = (changed[b, s] + 1) % VOCABULARY
        differs = (made(changed, mask, target) != before).flatten(1).any(1)
        assert differs[b]


@few_kinds
@torch.no_grad()
def test_beams_that_are_reordered_are_those_sequences_alone(config: RnnConfig):
    made, (source, mask, _) = model(config), batch()
    generator = torch.Generator().manual_seed(5)
    memory = made.encode(source, mask)
    state = made.start(memory, K)
    assert state.values is memory.states  # one a sentence, not one a beam
    assert state.keys.shape == memory.states.shape == (B, S, config.dim)
    written = torch.zeros(B, K, 0, dtype=torch.int64)
    for length in range(1, 6):
        tokens = ids(B, K, seed=length)
        parents = torch.randint(0, K, (B, K), generator=generator) if length > 1 else None
        if parents is not None:
            written = torch.stack([written[b, parents[b]] for b in range(B)])
        written = torch.cat([written, tokens[:, :, None]], -1)
        again, _, _ = made.step(state, tokens, parents)
        logits, state, weights = made.step(state, tokens, parents)
        assert torch.equal(logits, again)  # a step leaves the state that it was given as it was
        assert weights is None
        assert logits.shape == (B, K, VOCABULARY)
        for k in range(K):
            assert_close(logits[:, k], made(source, mask, written[:, k])[:, -1], atol=1e-5, rtol=1e-5)


@few_kinds
@torch.no_grad()
def test_one_beam_can_become_several(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    _, state, _ = made.step(made.start(made.encode(source, mask), 1), target[:, :1], None)
    tokens = ids(B, 5, seed=9)
    logits, _, _ = made.step(state, tokens, torch.zeros(B, 5, dtype=torch.int64))
    for k in range(5):
        alone = made(source, mask, torch.stack([target[:, 0], tokens[:, k]], 1))[:, -1]
        assert_close(logits[:, k], alone, atol=1e-5, rtol=1e-5)


@few_kinds
@torch.no_grad()
def test_sentences_that_are_kept_go_on_as_if_alone(config: RnnConfig):
    made, (source, mask, _) = model(config), batch()
    chosen = torch.tensor([2, 0])
    alone = made.start(made.encode(source[chosen], mask[chosen]), K)
    state = made.start(made.encode(source, mask), K)
    parents = torch.tensor([[1, 0], [0, 0], [1, 1]])
    for length in range(3):
        tokens = ids(B, K, seed=length)
        _, state, _ = made.step(state, tokens, parents)
        _, alone, _ = made.step(alone, tokens[chosen], parents[chosen])
    state = made.keep(state, chosen)
    for length in range(3, 6):
        tokens = ids(2, K, seed=length)
        kept, state, kept_weights = made.step(state, tokens, parents[chosen], explain=True)
        expected, alone, weights = made.step(alone, tokens, parents[chosen], explain=True)
        assert_close(kept, expected, atol=1e-5, rtol=1e-5)
        assert_close(kept_weights, weights, atol=1e-5, rtol=1e-5)


@few_kinds
@torch.no_grad()
def test_attention_is_a_distribution_over_the_real_tokens(config: RnnConfig):
    made, (source, mask, target) = model(config), batch()
    weights = made.align(source, mask, target)
    assert weights.shape == (B, T, S)
    assert_close(weights.sum(-1), torch.ones(B, T))
    assert weights.masked_select(~mask[:, None]).eq(0).all()
    assert weights.masked_select(mask[:, None]).gt(0).all()


def test_a_source_of_nothing_harms_neither_the_others_nor_the_gradients():
    made, (source, mask, target) = model(), batch()
    empty = mask.clone()
    empty[1] = False
    logits = made(source, empty, target)
    assert logits.isfinite().all()
    assert_close(logits[[0, 2]], made(source, mask, target)[[0, 2]], atol=1e-5, rtol=1e-5)
    logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in made.parameters())


@torch.no_grad()
def test_scores_at_chosen_positions_are_those_of_all():
    made, (source, mask, target) = model(), batch()
    states = made.states(source, mask, target)
    assert states.shape == (B, T, CONFIG.dim)
    chosen = target > 30
    assert_close(made.output(states[chosen]), made(source, mask, target)[chosen])


@torch.no_grad()
def test_the_encoder_is_torchs_on_each_sentence_alone():
    for bidirectional in (True, False):
        made, (source, mask, _) = model(dataclasses.replace(CONFIG, bidirectional=bidirectional)), batch()
        memory = made.encode(source, mask)
        for b, length in enumerate(LENGTHS):
            states, (h, c) = made.encoder(made.source_embedding(source[b, :length]))
            assert_close(memory.states[b, :length], states)
            assert memory.states[b, length:].eq(0).all()
            ends = [
                torch.cat([*part[2 * i : 2 * i + 2]]) if bidirectional else part[i] for part in (h, c) for i in (0, 1)
            ]
            first = [torch.tanh(bridge(end)) for bridge, end in zip(made.bridges, ends, strict=True)]
            assert_close(torch.cat([*memory.final])[:, b], torch.stack(first))


@pytest.mark.parametrize("share", ["all", "output", "none"])
def test_tables_that_are_shared_are_one(share: str):
    config = dataclasses.replace(CONFIG, share=share)
    tables = {"all": 1, "output": 2, "none": 3}[share]
    assert count(config) - count(CONFIG) == (tables - 1) * VOCABULARY * CONFIG.dim
    made, (source, mask, target) = model(config), batch()
    assert len(made.state_dict()) == len(list(made.parameters()))  # none is saved twice
    absent = next(i for i in range(VOCABULARY) if i not in source and i not in target)
    with torch.no_grad():
        before = made(source, mask, target)
        made.source_embedding.weight[absent] += 1.0
        by_source = (made(source, mask, target) - before)[..., absent]
        made.target_table.weight[absent] += 1.0
        by_both = (made(source, mask, target) - before)[..., absent]
    assert by_source.any() == (share == "all")
    assert by_both.any() == (share != "none")


@torch.no_grad()
def test_two_vocabularies_and_narrow_embeddings():
    config = dataclasses.replace(CONFIG, target_vocab_size=67, embedding_dim=19, share="none")
    source, mask, target = batch()
    target[0, 3] = 66
    made = model(config)
    assert made(source, mask, target).shape == (B, T, 67)
    assert made.source_embedding.weight.shape == (VOCABULARY, 19)
    shared = model(dataclasses.replace(CONFIG, target_vocab_size=67, share="output"))
    assert shared(source, mask, target).shape == (B, T, 67)


def test_dropout_is_for_training_alone():
    made, (source, mask, target) = model(), batch()
    assert torch.equal(made(source, mask, target), made(source, mask, target))
    made.train()
    torch.manual_seed(0)
    assert not torch.allclose(made(source, mask, target), made(source, mask, target))


def test_the_start_follows_from_the_generator():
    first, second, other = Rnn(CONFIG), Rnn(CONFIG), Rnn(CONFIG)
    for made, seed in ((first, 7), (second, 7), (other, 8)):
        initialise(made, CONFIG, torch.Generator().manual_seed(seed))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.state_dict()[name])
        assert not torch.equal(parameter, other.state_dict()[name])
        assert parameter.abs().max() <= CONFIG.init_range
    assert max(parameter.abs().max() for parameter in first.parameters()) > 0.99 * CONFIG.init_range


@pytest.mark.parametrize(("cell", "feeding"), [("lstm", True), ("gru", False)])
def test_a_tiny_model_learns_to_copy(cell: str, feeding: bool):
    config = RnnConfig(vocab_size=13, layers=1, dim=48, cell=cell, input_feeding=feeding, dropout=0.0)
    made = Rnn(config)
    generator = torch.Generator().manual_seed(3)
    initialise(made, config, generator)
    optimizer = torch.optim.Adam(made.parameters(), lr=1e-2)

    def examples(number: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        lengths = torch.randint(2, 6, (number,), generator=generator)
        mask = torch.arange(5) < lengths[:, None]
        source = torch.randint(3, 13, (number, 5), generator=generator).masked_fill(~mask, config.pad)
        ending = F.pad(source, (0, 1)).scatter(1, lengths[:, None], config.eos)
        return source, mask, F.pad(ending, (1, 0), value=config.sos)[:, :-1], ending

    for _ in range(200):
        source, mask, target, labels = examples(64)
        logits = made(source, mask, target)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=config.pad)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()

    made.eval()
    source, mask, _, labels = examples(101)
    with torch.no_grad():
        state = made.start(made.encode(source, mask), 1)
        token, written = torch.full((101, 1), config.sos), []
        for _ in range(6):
            logits, state, _ = made.step(state, token, None)
            token = logits.argmax(-1)
            written.append(token)
    right = (torch.cat(written, 1) == labels) | (labels == config.pad)
    assert right.all(1).float().mean() > 0.95


MISTAKES: list[tuple[dict[str, str | int | float], str]] = [
    ({"cell": "elman"}, "cell 'elman' is not known; choose from lstm, gru"),
    ({"score": "cosine"}, "score 'cosine' is not known; choose from dot, scaled, general, concat, location"),
    ({"share": "some"}, "share 'some' is not known; choose from all, output, none"),
    ({"vocab_size": 0}, "vocab_size 0 must be at least 1"),
    ({"layers": 0}, "layers 0 must be at least 1"),
    ({"target_vocab_size": 0}, "target_vocab_size 0 must be at least 1"),
    ({"embedding_dim": -1}, "embedding_dim -1 must be at least 1"),
    ({"max_length": 0}, "max_length 0 must be at least 1"),
    ({"dim": 27}, "dim 27 cannot be halved for two directions; try dim 26 or 28"),
    ({"dim": 1}, "dim 1 cannot be halved for two directions; try dim 2"),
    ({"dropout": 1.0}, "dropout 1.0 must be at least 0 and below 1"),
    ({"dropout": math.nan}, "dropout nan must be at least 0 and below 1"),
    ({"init_range": 0.0}, "init_range 0.0 must be above 0"),
    ({"target_vocab_size": 67}, "vocabularies of 61 and 67 tokens cannot share all tables; use share output or none"),
    ({"embedding_dim": 19}, "embedding_dim 19 differs from dim 26, but share all .*; use share none"),
    ({"pad": 61}, "pad 61 is no token of a vocabulary of 61; choose one below that"),
    ({"eos": 31, "target_vocab_size": 31, "share": "none"}, "eos 31 is no token of a vocabulary of 31; .*"),
    ({"sos": 0}, "pad 0, sos 0, eos 2: two are the same; give each a token of its own"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_a_config_checks_itself(changes: dict[str, str | int | float], message: str):
    with pytest.raises(UserError, match=f"^{message}$"):
        dataclasses.replace(CONFIG, **changes)


@torch.no_grad()
def test_one_direction_may_have_an_odd_width():
    assert model(dataclasses.replace(CONFIG, dim=27, bidirectional=False)).states(*batch()).shape == (B, T, 27)


def test_a_source_too_long_for_location_is_refused_and_for_others_is_not():
    source, mask = ids(1, 18), torch.ones(1, 18, dtype=torch.bool)
    target = ids(1, 2)
    with pytest.raises(UserError, match="a source of 18 tokens is beyond the 17"):
        model(dataclasses.replace(CONFIG, score="location"))(source, mask, target)
    assert model()(source, mask, target).shape == (1, 2, VOCABULARY)


def test_sizes_by_name():
    assert SIZES == {"tiny": (1, 128), "small": (2, 256), "base": (2, 512), "big": (4, 1024)}
    config = RnnConfig.of_size("small", vocab_size=97, target_vocab_size=89, share="output", cell="gru", eos=5)
    assert config == RnnConfig(
        vocab_size=97, target_vocab_size=89, layers=2, dim=256, share="output", cell="gru", eos=5
    )
    with pytest.raises(UserError, match="size 'huge' is not known; choose from tiny, small, base, big"):
        RnnConfig.of_size("huge", vocab_size=97)


def test_the_parameters_of_base_by_hand():
    # Four gates with two biases each, in each direction; the decoder also reads the joined state.
    encoder = 2 * (4 * 256 * (512 + 256 + 2)) + 2 * (4 * 256 * (512 + 256 + 2))
    decoder = 4 * 512 * (1024 + 512 + 2) + 4 * 512 * (512 + 512 + 2)
    bridges = 4 * (512 * 512 + 512)
    config = RnnConfig.of_size("base", vocab_size=1009)
    assert count(config) == 1009 * 512 + encoder + decoder + bridges + 512 * 512 + 1024 * 512


DETERMINISTIC = """
import torch
from heedful.models.rnn import Rnn, RnnConfig
torch.use_deterministic_algorithms(True)
torch.set_default_device("cuda")
for cell in ("lstm", "gru"):
    model = Rnn(RnnConfig(vocab_size=61, dim=26, cell=cell))
    source, mask = torch.randint(3, 61, (5, 7)), torch.arange(7) < torch.tensor([7, 3, 5, 1, 2])[:, None]
    model(source, mask, source).logsumexp(-1).sum().backward()
    parents = torch.tensor([[1, 0], [1, 1]])
    state = model.keep(model.start(model.encode(source, mask), 2), parents[0])
    model.step(state, source[:2, :2], parents)
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_every_operation_has_a_deterministic_kernel():
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # read once, when CUDA starts
    subprocess.run([sys.executable, "-c", DETERMINISTIC], env=environment, check=True)

"""What an augmentation may be told."""

import pytest

from heedful.config import from_tables, to_toml
from heedful.data.augmentation import LIGHT, NONE, STRONG, Augmentation
from heedful.errors import UserError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("crop", 1.5),
        ("crop", -0.1),
        ("zoom", 0.0),
        ("zoom", 1.1),
        ("rand_augment", -1),
        ("rand_augment", 15),
        ("magnitude", 11.0),
        ("erasing", 2.0),
        ("mixed", -1.0),
        ("mixup", -0.2),
        ("cutmix", float("nan")),
        ("mixup", float("inf")),
        ("fill", "pink"),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, value: object):
    with pytest.raises(UserError, match=field.replace("_", "-")):
        Augmentation(**{field: value})


def test_whether_labels_are_mixed():
    assert not NONE.mixes
    assert not LIGHT.mixes
    assert STRONG.mixes
    assert Augmentation(cutmix=1.0).mixes
    assert not Augmentation(cutmix=1.0, mixed=0.0).mixes


def test_nothing_is_flipped_unless_it_is_said():
    assert not any(how.flip for how in (NONE, LIGHT, STRONG))


@pytest.mark.parametrize("how", [NONE, LIGHT, STRONG])
def test_kept_as_toml(how: Augmentation):
    import tomllib

    assert from_tables(Augmentation, tomllib.loads(to_toml(how)), "here") == how

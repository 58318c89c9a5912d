"""What an explorer can't show: the user's mistakes, told apart by what is wrong."""

from heedful.errors import UserError


class TooLong(UserError):  # noqa: N818 (named by what is wrong)
    """More than is read or looked at in one go."""


class NotThere(UserError):  # noqa: N818
    """A model or a run that nobody has loaded, or a part that this model does not have."""

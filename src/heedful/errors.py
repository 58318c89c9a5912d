"""Why a command may end early for no fault of ours, and what it says then."""


class UserError(Exception):
    """A user's mistake. Its message is one line: the value, the rule and the way out.

    The command line prints that line on standard error and exits with 2.
    """


class OfOneProcess(UserError):  # noqa: N818 (named by whose it is)
    """A mistake that one process of several has met, and must tell, be it the first or not."""


class OutOfReach(UserError):  # noqa: N818 (named by what is wrong)
    """A disk or a system that fails, maybe for a while: what it holds need not be damaged."""


class Missing(UserError):  # noqa: N818 (named by what is wrong)
    """What a command is to read is not where it should be."""


class Interrupted(Exception):  # noqa: N818 (not an error: somebody asked)
    """A run was asked to stop, and has saved where it stands; the message says so."""

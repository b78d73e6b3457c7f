"""The former name of a part of ``_change``."""

from .._change import (
    Pace as Pace,
)
from .._change import (
    TimedSteps as Steps,  # noqa: F401
)
from .._change import (
    Workers as Workers,
)
from .._change import (
    in_own_thread as in_own_thread,
)
from .._change import (
    map_threads as map_threads,
)
from .._change import (
    progress_bar as progress_bar,
)
from .._change import (
    share_rows as share_rows,
)
from .._change import (
    spans as spans,
)
from .._change import (
    with_progress as with_progress,
)
from .._change import (
    workers as workers,
)

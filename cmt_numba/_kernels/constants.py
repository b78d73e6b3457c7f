"""Constants of several rooms."""

import numpy as np

NONE = np.int64(-1)  # no node, leaf or memory. Also terminates lists.
LEFT = 0
RIGHT = 1
MOST_FEATURES = 2**31 - 1  # maximum number of features. Feature indices are int32.
MAX_MEMORIES = 2**31 - 1  # maximum number of memories. Slots are int32.

"""Operations of a forest on validated rows: what the public tree, stores and estimators call."""

from .driver import Driver
from .filters import Filter, Remembered
from .options import KEEP, OPTIONS, ROUTER_LOSSES, SCORER_LOSSES
from .scanning import scan_dense
from .taught import TaughtForest

"""What is learned about the closed form from measurements: features, boosted trees, and what both say together."""

from offcut.costmodel.learned import library as library
from offcut.costmodel.learned import metrics as metrics
from offcut.costmodel.learned.case import Case as Case
from offcut.costmodel.learned.case import Ran as Ran
from offcut.costmodel.learned.described import Feature as Feature
from offcut.costmodel.learned.described import check_names as check_names
from offcut.costmodel.learned.described import described as described
from offcut.costmodel.learned.described import features_found as features_found
from offcut.costmodel.learned.ensemble import Settings as Settings
from offcut.costmodel.learned.features import CLOSED as CLOSED
from offcut.costmodel.learned.features import FEATURES as FEATURES
from offcut.costmodel.learned.features import Counted as Counted
from offcut.costmodel.learned.pair import Foreseen as Foreseen
from offcut.costmodel.learned.pair import Pair as Pair
from offcut.costmodel.learned.pair import columns as columns
from offcut.costmodel.learned.pair import learned as learned
from offcut.costmodel.learned.pair import ordered as ordered
from offcut.costmodel.learned.pair import useless_in as useless_in
from offcut.costmodel.learned.rows import Rows as Rows

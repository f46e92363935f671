"""What is learned about the closed form from measurements: features, boosted trees, and what both say together."""

from offcut.costmodel.learned import library as library
from offcut.costmodel.learned import metrics as metrics
from offcut.costmodel.learned.case import Case as Case
from offcut.costmodel.learned.case import StageCounts as StageCounts
from offcut.costmodel.learned.case import stages_of_nest as stages_of_nest
from offcut.costmodel.learned.ensemble import Settings as Settings
from offcut.costmodel.learned.feature_registry import Feature as Feature
from offcut.costmodel.learned.feature_registry import check_names as check_names
from offcut.costmodel.learned.feature_registry import compute_features as compute_features
from offcut.costmodel.learned.feature_registry import features_found as features_found
from offcut.costmodel.learned.features import CLOSED as CLOSED
from offcut.costmodel.learned.features import FEATURES as FEATURES
from offcut.costmodel.learned.pair import Foreseen as Foreseen
from offcut.costmodel.learned.pair import Pair as Pair
from offcut.costmodel.learned.pair import columns as columns
from offcut.costmodel.learned.pair import learned as learned
from offcut.costmodel.learned.pair import pair_accuracy as pair_accuracy
from offcut.costmodel.learned.pair import useless_in as useless_in
from offcut.costmodel.learned.rows import Rows as Rows

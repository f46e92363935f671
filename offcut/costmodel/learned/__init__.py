"""What is learned about the closed form from measurements: features, boosted trees, and what both say together."""

from typing import TYPE_CHECKING

from offcut.core.names import renamed_names
from offcut.costmodel.learned import metrics as metrics
from offcut.costmodel.learned import xgboost_loader as xgboost_loader
from offcut.costmodel.learned.case import Case as Case
from offcut.costmodel.learned.case import StageCounts as StageCounts
from offcut.costmodel.learned.case import stages_of_nest as stages_of_nest
from offcut.costmodel.learned.corrected_model import CorrectedModel as CorrectedModel
from offcut.costmodel.learned.corrected_model import Foreseen as Foreseen
from offcut.costmodel.learned.corrected_model import columns as columns
from offcut.costmodel.learned.corrected_model import pair_accuracy as pair_accuracy
from offcut.costmodel.learned.corrected_model import train as train
from offcut.costmodel.learned.corrected_model import useless_in as useless_in
from offcut.costmodel.learned.dataset import Dataset as Dataset
from offcut.costmodel.learned.ensemble import Settings as Settings
from offcut.costmodel.learned.features import CLOSED as CLOSED
from offcut.costmodel.learned.features import FEATURES as FEATURES
from offcut.costmodel.learned.features import Feature as Feature
from offcut.costmodel.learned.features import check_names as check_names
from offcut.costmodel.learned.features import compute_features as compute_features
from offcut.costmodel.learned.features import load_features as load_features

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        {
            "Pair": "CorrectedModel",
            "Rows": "Dataset",
            "features_found": "load_features",
            "learned": "train",
            "library": "xgboost_loader",
        },
    )

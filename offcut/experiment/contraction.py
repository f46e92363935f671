"""Names that moved: contractions and their problems are studies'; what a result must be is in `reference`."""

from offcut.core.names import moved_names

__getattr__ = moved_names(
    __name__,
    {
        "": "offcut.studies.contraction",
        "EPILOGUES": "offcut.studies.peers.operators",
        "Problem": "offcut.studies.peers.operators",
        **dict.fromkeys(("HALF_ULP", "Reference"), "offcut.experiment.reference"),
    },
)

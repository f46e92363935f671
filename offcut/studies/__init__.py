"""Experiments as files: what is measured, at which sizes, against whom; samples, tables and figures in one folder."""

from offcut.studies.compare import compare as compare
from offcut.studies.run import Outcome as Outcome
from offcut.studies.run import study as study

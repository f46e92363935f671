"""Names that moved, to the peers of studies."""

from offcut.core.names import moved_names

__getattr__ = moved_names(__name__, {"": "offcut.studies.peers"})

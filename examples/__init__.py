"""Programs that are written with offcut, each a folder."""

import errno
import os
from pathlib import Path

import pytest

from offcut.errors import OffcutError
from offcut.experiment.outputs import check_writable


def test_a_file_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    there, new = tmp_path / "there.csv", tmp_path / "folder" / "new.csv"
    there.write_text("kept")

    check_writable(there, "sweep")
    check_writable(new, "sweep")

    assert there.read_text() == "kept"
    assert new.parent.is_dir()
    assert not new.exists()


def test_a_file_that_cannot_be_written_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")

    with pytest.raises(OffcutError) as refused:
        check_writable(file / "sweep.csv", "sweep")

    assert str(refused.value) == (
        "sweep: cannot write sweep.csv\n"
        f"  at       {file}/sweep.csv\n"
        f"  because  {os.strerror(errno.ENOTDIR)}\n"
        "  help     another path, in a folder that can be written"
    )

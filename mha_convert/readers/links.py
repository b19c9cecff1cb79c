"""Links in a folder that came from a stranger: an archive can hold links to any file of the machine."""

from pathlib import Path

from ..errors import ReadError
from ..files.limits import TRUSTED, limits
from ..files.locations import is_link_out, is_remote


def refuse_links_out(folder: Path, *files: Path) -> None:
    """Each file is in ``folder``, whatever links lead to it, or in the cache that the folder belongs to.

    Raises:
        ReadError: one does not; it was not opened.
    """
    if is_remote(folder) or limits() == TRUSTED:
        return
    for file in files:
        if is_link_out(folder, file):
            raise ReadError(
                f"{folder}: its '{file.name}' is a link to a file elsewhere, which is not followed. "
                "Copy the file into the folder, or use --trust (trust=True)."
            )

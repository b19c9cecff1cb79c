"""Links in a folder that came from a stranger: an archive can hold links to any file of the machine."""

from ..errors import ReadError
from ..files.limits import TRUSTED
from ..files.locations import is_link_out
from ..files.source import Source


def refuse_links_out(folder: Source, *files: Source) -> None:
    """Each file is in ``folder``, whatever links lead to it, or in the cache that the folder belongs to.

    Raises:
        ReadError: one does not; it was not opened.
    """
    if folder.limits == TRUSTED:
        return
    for file in files:
        if is_link_out(folder.place, file.place):
            raise ReadError(
                f"{folder}: its '{file.name}' is a link to a file elsewhere, which is not followed. "
                "Copy the file into the folder, or use --trust (trust=True)."
            )

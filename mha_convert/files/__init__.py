"""Where bytes are: files on disks and behind URLs, within bounds, and processes of our own."""

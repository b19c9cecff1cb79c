"""Where bytes are: files on disks and at URLs, within bounds, and processes of our own."""

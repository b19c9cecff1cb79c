"""Names that a stranger may give to files and layers, for everything that writes them somewhere."""

# No "/" in them: each can be the name of a file.
NAMES = (
    """x\"\"\";open("PWNED", "w");\"\"\"""",
    """a'; touch PWNED #""",
    "`touch PWNED`",
    "$(touch PWNED)",
    'b" ; touch PWNED ; "',
    "C:\\Nets\\x",
    "\\N{BULLET} \\x",
    "a\nopen('PWNED', 'w')\n",
    'quote at the end"',
    "backslash at the end\\",
    "\x1b[31mred\u202e",
    "\U0001f600 smile",
    "\udcff byte",
    "-x",
    "=ls",
    "a\u2019; touch PWNED #",
    "{source} {0} %s",
    "𝔘nicode",
)

"""What is said: records to text for people and to JSON for programs. ``kinds.OF_KIND`` has a row for each kind."""
